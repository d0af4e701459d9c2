"""Chooses the kind of testbed for this machine and says why."""

import platform
from dataclasses import dataclass
from typing import Literal

from farmctl.errors import StageError


@dataclass(frozen=True, slots=True)
class Choice:
    kind: Literal["local", "kind"]
    why: str


def choose(
    asked: str, system: str | None = None, *, kind_is_up: bool = False, local_is_up: bool = False
) -> Choice:
    """``asked``: auto, local or kind. Raises StageError where the one asked for cannot run.

    auto never makes a cluster where Chromes can simply be started: that takes seconds, a cluster minutes.
    """
    system = system or platform.system()
    if asked == "kind" and local_is_up:
        raise StageError("a local farm is up", hint="farmctl down first")
    if asked == "kind":
        return Choice("kind", "asked for")
    if kind_is_up and asked == "local":
        raise StageError("a farm on Kubernetes is up", hint="farmctl down first")
    if kind_is_up:
        return Choice("kind", "that farm is there already")
    if system != "Linux":
        if asked == "local":
            raise StageError(
                f"the local testbed runs on Linux only, this is {system}", hint="farmctl up --testbed kind"
            )
        return Choice("kind", f"{system}: the local testbed runs on Linux only")
    if asked == "local":
        return Choice("local", "asked for")
    return Choice("local", "Linux: real Chromes on this machine, nothing to install")
