"""The scenario's clock and its record of what happened when; every moment goes to the listener as well."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from farmctl.scenarios.results import Check, Fate, Moment, Result


class Listener(Protocol):
    """Who watches a run: a live view, plain lines, or nobody. Called on the event loop; must not block."""

    def began(self, name: str, claim: str, number: int, total: int) -> None: ...
    def moment(self, moment: Moment) -> None: ...
    def caller(self, fate: Fate) -> None: ...
    def checked(self, check: Check) -> None: ...
    def ended(self, result: Result) -> None: ...


class Silent:
    """A listener that says nothing."""

    def began(self, name: str, claim: str, number: int, total: int) -> None: ...
    def moment(self, moment: Moment) -> None: ...
    def caller(self, fate: Fate) -> None: ...
    def checked(self, check: Check) -> None: ...
    def ended(self, result: Result) -> None: ...


class Timeline:
    """Moments in order. ``began`` (unix seconds) is the mark from which logs are read."""

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._wall = wall
        self._zero = clock()
        self.began = wall()
        self.moments: list[Moment] = []

    def now_ms(self) -> int:
        return round((self._clock() - self._zero) * 1000)

    def add(self, kind: str, text: str, **data: Any) -> Moment:
        moment = Moment(self.now_ms(), self._wall(), kind, text, data)
        self.moments.append(moment)
        self._listener.moment(moment)
        return moment
