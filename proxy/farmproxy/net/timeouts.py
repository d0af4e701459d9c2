"""Many timers of one length: starting, stopping and expiring cost a dict operation each, whatever their number.

Precision is that of the sweep that asks (a quarter of a second); what needs better has a timer of the loop.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timeouts(Generic[K]):
    """Keys that run out ``after_s`` after their start, oldest first. A second start begins anew."""

    __slots__ = ("_clock", "_started", "after_s")

    def __init__(self, after_s: float, clock: Callable[[], float]) -> None:
        self.after_s = after_s
        self._clock = clock
        self._started: dict[K, float] = {}  # in the order of their starts

    def __len__(self) -> int:
        return len(self._started)

    def start(self, key: K) -> None:
        started = self._started
        if key in started:
            del started[key]
        started[key] = self._clock()

    def stop(self, key: K) -> None:
        self._started.pop(key, None)

    def oldest(self) -> K:
        """The one that was started first; only when there is one."""
        return next(iter(self._started))

    def expired(self) -> list[K]:
        """Take out and return what has run out."""
        if not self._started:
            return []
        latest = self._clock() - self.after_s
        found = []
        for key, at in self._started.items():
            if at > latest:
                break
            found.append(key)
        for key in found:
            del self._started[key]
        return found
