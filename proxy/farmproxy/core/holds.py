"""The callers held for one pool. Rule: first in, first out by arrival, so a caller that comes back after a
failed dial stands where it stood. Adding, taking and leaving cost O(log n) at most.
"""

import heapq

from farmproxy.core.callers import Caller, Phase

COMPACT_OVER = 64


class Holds:
    """A heap on the order of arrival. Who leaves is only marked (its phase) and swept later."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Caller]] = []
        self.count = 0  # who is held; read at every event, so no call
        self.cost = 0  # bytes, the sum of Caller.cost

    def __len__(self) -> int:
        return self.count

    def add(self, caller: Caller) -> None:
        caller.phase = Phase.HELD
        self.count += 1
        self.cost += caller.cost
        heapq.heappush(self._heap, (caller.seq, caller))

    def grow(self, caller: Caller, cost: int) -> None:
        self.cost += cost - caller.cost
        caller.cost = cost

    def take(self) -> Caller:
        """The caller whose turn it is. Only when someone is held; the caller sets its new phase."""
        while True:
            caller = heapq.heappop(self._heap)[1]
            if caller.phase is Phase.HELD:
                self.count -= 1
                self.cost -= caller.cost
                return caller

    def leave(self, caller: Caller) -> None:
        caller.phase = Phase.ENDED
        self.count -= 1
        self.cost -= caller.cost
        if len(self._heap) > COMPACT_OVER and self.count * 2 < len(self._heap):
            self._heap = [entry for entry in self._heap if entry[1].phase is Phase.HELD]
            heapq.heapify(self._heap)

    def in_order(self) -> list[Caller]:
        """Everyone held, first arrival first. O(n log n): for people and tests."""
        return [caller for _, caller in sorted(self._heap) if caller.phase is Phase.HELD]
