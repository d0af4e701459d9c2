"""What a scenario leaves behind, as plain values: the shape of `-o json` and of every report.

The shape is versioned: fields are added, never renamed, within one ``REPORT_VERSION``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

REPORT_VERSION = 1


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"  # the claim is broken
    NOT_STAGED = "not-staged"  # the fault did not happen, or the testbed or machine is at fault
    NOT_HERE = "not-here"  # this testbed cannot do it; never counted as passed
    INTERRUPTED = "interrupted"


class Outcome(StrEnum):
    """How a caller ended."""

    DONE = "done"
    LOST = "lost"  # its pod, browser or proxy died under it
    REFUSED = "refused"
    FAILED = "failed"  # the page or the harness, not the farm
    LEFT = "left"  # went away on purpose
    UNFINISHED = "unfinished"  # still waiting or working when the scenario ended


@dataclass(frozen=True, slots=True)
class Check:
    """One number of the claim: what was expected, what was seen, and the lines that show it."""

    name: str
    expected: str
    got: str
    passed: bool
    evidence: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the timeline. ``at_ms`` since the scenario began, ``wall`` unix seconds."""

    at_ms: int
    wall: float
    kind: str  # stage, fault, proof, caller, check, note
    text: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Span:
    """A stretch of a caller's time: waiting, session or backoff; milliseconds since the scenario began."""

    state: str
    from_ms: int
    to_ms: int | None = None
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Fate:
    caller: str
    kind: str  # playwright, render, raw
    outcome: str
    errors: Sequence[str]
    attempts: int
    spans: Sequence[Span]
    on_purpose: bool = False  # the scenario meant it to be refused: no part of the blast radius


@dataclass(slots=True)
class Result:
    name: str
    claim: str
    verdict: Verdict
    reason: str = ""
    began: float = 0.0  # unix seconds
    duration_s: float = 0.0
    blast_radius: int = 0
    checks: list[Check] = field(default_factory=list)
    invariants: list[Check] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    testbed: str
    machine: str
    farmctl: str
    began: float
    version: int = REPORT_VERSION
    duration_s: float = 0.0
    results: list[Result] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 a claim failed, 3 not staged or nothing ran, 130 interrupted; the worst news wins."""
        verdicts = {result.verdict for result in self.results}
        if Verdict.INTERRUPTED in verdicts:
            return 130
        if Verdict.FAILED in verdicts:
            return 1
        return (
            0
            if verdicts and verdicts <= {Verdict.PASSED, Verdict.NOT_HERE} and Verdict.PASSED in verdicts
            else 3
        )

    def count(self, verdict: Verdict) -> int:
        return sum(result.verdict is verdict for result in self.results)


def blast_radius(fates: Sequence[Fate]) -> int:
    """How many callers saw at least one error; a retry that succeeds does not take its error back."""
    return sum(bool(fate.errors) and not fate.on_purpose for fate in fates)


def struck(fates: Sequence[Fate]) -> list[Fate]:
    """Those that saw an error or did not get done."""
    return [fate for fate in fates if fate.errors or fate.outcome != Outcome.DONE]
