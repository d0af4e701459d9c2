"""Chooses the kind of testbed for this machine and says why."""

import platform
from dataclasses import dataclass
from typing import Literal

from farmctl.errors import StageError


@dataclass(frozen=True, slots=True)
class Choice:
    kind: Literal["local", "kind"]
    why: str


def choose(asked: str, system: str | None = None) -> Choice:
    """``asked``: auto, local or kind. Raises StageError where the one asked for cannot run."""
    system = system or platform.system()
    if asked == "kind":
        return Choice("kind", "asked for")
    if system != "Linux":
        if asked == "local":
            raise StageError(
                f"the local testbed runs on Linux only, this is {system}", hint="farmctl up --testbed kind"
            )
        return Choice("kind", f"{system}: the local testbed runs on Linux only")
    if asked == "local":
        return Choice("local", "asked for")
    return Choice("local", "Linux: real Chromes on this machine, nothing to install")


def not_yet() -> StageError:
    return StageError("the kind testbed is not there yet", hint="on Linux: farmctl up --testbed local")
