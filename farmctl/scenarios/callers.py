"""One caller's record: what it is doing, what it was granted, each error it saw, how it ended.

An error once seen stays: a retry that succeeds makes the job done, not the error unseen. Only ``end`` sets
the outcome, and it counts once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from farmctl.scenarios.results import Fate, Outcome, Span


@dataclass(frozen=True, slots=True)
class Grant:
    """A session as the caller saw it begin; what its kind of caller cannot see is empty."""

    at_ms: int
    pod: str = ""
    lease: str = ""
    waited_ms: int = 0
    dials: int = 0


class Caller:
    def __init__(
        self, name: str, kind: str, label: str, now_ms: Callable[[], int], changed: Callable[["Caller"], None]
    ) -> None:
        self.name = name
        self.kind = kind
        self.label = label  # what the door shows of it in status and logs
        self.outcome: Outcome | None = None
        self.errors: list[str] = []
        self.error_kinds: list[str] = []  # JobLost, Refused, ... in step with ``errors``
        self.error_ms: list[int] = []
        self.grants: list[Grant] = []
        self.spans: list[Span] = []
        self.attempts = 0
        self.in_session = asyncio.Event()
        self.ended = asyncio.Event()
        self.leaving = False
        self.to_be_refused = False
        self._go: Callable[[str], object] | None = None
        self._now_ms = now_ms
        self._changed = changed

    def arrive(self) -> None:
        self.attempts += 1
        self._enter("waiting")

    def granted(self, *, pod: str = "", lease: str = "", waited_ms: int = 0, dials: int = 0) -> None:
        self.grants.append(Grant(self._now_ms(), pod, lease, waited_ms, dials))
        self._enter("session", pod)
        self.in_session.set()

    def told_of(self, *, pod: str, lease: str, waited_ms: int, dials: int) -> None:
        """A session that is known only by its answer: it began when the farm says that the wait was over."""
        arrived_ms = self.spans[-1].from_ms
        self.granted(pod=pod, lease=lease, waited_ms=waited_ms, dials=dials)
        self.spans[-2].to_ms = self.spans[-1].from_ms = min(arrived_ms + waited_ms, self.spans[-1].from_ms)

    def saw(self, error: BaseException) -> None:
        self.errors.append(f"{type(error).__name__}: {error}".partition("\n")[0])
        self.error_kinds.append(type(error).__name__)
        self.error_ms.append(self._now_ms())
        self.in_session.clear()

    def back_off(self) -> None:
        self._enter("backoff")

    def end(self, outcome: Outcome) -> None:
        if self.outcome is not None:
            return
        self.outcome = outcome
        if self.spans and self.spans[-1].to_ms is None:
            self.spans[-1].to_ms = self._now_ms()
        self.ended.set()
        self._changed(self)

    def may_leave(self, go: Callable[[str], object]) -> None:
        """Say how this caller's connection is dropped, should ``leave`` be asked for."""
        self._go = go
        if self.leaving:
            go("fin")

    def leave(self, how: str = "fin") -> None:
        """Drop the connection, as ``fin`` (closed) or ``rst`` (reset), whatever the caller is doing."""
        self.leaving = True
        if self._go is not None:
            self._go(how)

    def ended_ms(self) -> int:
        return self.spans[-1].to_ms or 0 if self.spans else 0

    def fate(self) -> Fate:
        outcome = self.outcome or Outcome.UNFINISHED
        return Fate(
            self.name,
            self.kind,
            outcome,
            list(self.errors),
            self.attempts,
            list(self.spans),
            on_purpose=self.to_be_refused and outcome is Outcome.REFUSED,
        )

    def _enter(self, state: str, pod: str = "") -> None:
        now = self._now_ms()
        if self.spans and self.spans[-1].to_ms is None:
            self.spans[-1].to_ms = now
        self.spans.append(Span(state, now, None, pod))
        self._changed(self)
