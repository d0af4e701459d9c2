"""One event being handled: its time, the commands it has brought so far, and the timers it may set."""

import heapq
from collections.abc import Callable
from typing import Any

from farmproxy.core.commands import Command

COMPACT_OVER = 256  # below this the dead are too few to be worth a sweep


class Timer:
    """``act(arg)`` is due at ``at``; ``act`` is None once fired or cancelled."""

    __slots__ = ("act", "arg", "at")

    def __init__(self, at: float, act: Callable[[Any], None], arg: Any) -> None:
        self.at = at
        self.act: Callable[[Any], None] | None = act
        self.arg = arg


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._dead = 0

    def set(self, at: float, act: Callable[[Any], None], arg: Any) -> Timer:
        timer = Timer(at, act, arg)
        self._count += 1  # equal times fire in the order they were set
        heapq.heappush(self._heap, (at, self._count, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        if timer.act is None:
            return
        timer.act = None
        timer.arg = None
        self._dead += 1
        if self._dead > COMPACT_OVER and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].act is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    def next_at(self) -> float:
        """Time of the earliest live timer, infinity when there is none."""
        heap = self._heap
        while heap:
            if heap[0][2].act is not None:
                return heap[0][0]
            heapq.heappop(heap)
            self._dead -= 1
        return float("inf")

    def fire_next(self, now: float) -> bool:
        """Let the earliest timer that is due act; False when none is."""
        if self.next_at() > now:
            return False
        timer = heapq.heappop(self._heap)[2]
        act, arg = timer.act, timer.arg
        timer.act = timer.arg = None
        assert act is not None
        act(arg)
        return True

    def __len__(self) -> int:
        return len(self._heap) - self._dead


class EventContext:
    """Shared by all parts of a farm, because one event is handled at a time."""

    __slots__ = ("now", "out", "timers")

    def __init__(self) -> None:
        self.now = 0.0
        self.out: list[Command] = []
        self.timers = Timers()

    def begin(self, now: float) -> list[Command]:
        self.now = now
        self.out = []
        return self.out

    def do(self, command: Command) -> None:
        self.out.append(command)

    def after(self, delay_s: float, act: Callable[[Any], None], arg: Any) -> Timer:
        return self.timers.set(self.now + delay_s, act, arg)
