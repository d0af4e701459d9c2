"""The scenarios by name, in the order of `--all`: cheap and central ones first, so that a broken farm shows early."""

import importlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from farmctl.errors import UsageError
from farmctl.scenarios.stage import Stage


@dataclass(frozen=True, slots=True)
class Scenario:
    """``needs`` are the testbed's verbs it cannot do without. ``pods`` are there, free, when it begins.
    ``limit_s`` is far beyond its usual length: reaching it is a failure.
    """

    name: str
    claim: str
    needs: Sequence[str]
    run: Callable[[Stage], Awaitable[None]]
    pods: int = 4
    limit_s: float = 150.0


NAMES = (
    "stale-endpoint",
    "mid-job-kill",
    "hold-until-free",
    "caller-leaves",
    "idle-browser-death",
    "frozen-pod",
    "half-dead-pod",
    "exclusive-lease",
    "pod-never-ready",
    "apiserver-outage",
    "proxy-restart",
    "cold-start",
    "scale-from-queue",
    "scale-down-spares-busy",
    "rollout",
    "spot-reclaim",
)


def find(name: str) -> Scenario:
    """Return the scenario of this name. Raises UsageError with the names there are."""
    if name not in NAMES:
        raise UsageError(f"there is no scenario {name!r}", hint="farmctl scenario --list")
    module = importlib.import_module(f"farmctl.scenarios.claims.{name.replace('-', '_')}")
    scenario: Scenario = module.SCENARIO
    return scenario


def find_all(names: Sequence[str] = NAMES) -> list[Scenario]:
    return [find(name) for name in dict.fromkeys(names)]
