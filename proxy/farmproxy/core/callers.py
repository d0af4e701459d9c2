"""A caller from arrival to its one end: held, dialling, leased. The lease it gets has the caller's id.

Rule: ``seq`` is its place in the order of arrival and ``deadline`` the end of its hold; neither ever changes.
"""

import heapq
from dataclasses import dataclass, field
from enum import Enum

from farmproxy.core.event_context import Timer
from farmproxy.core.events import PodKey
from farmproxy.core.pods import Pod
from farmproxy.core.story import Line


class Phase(Enum):
    ARRIVING = "arriving"
    HELD = "held"
    DIALLING = "dialling"
    LEASED = "leased"
    CLOSING = "closing"  # leased, and told to close: SessionEnded is due
    ENDED = "ended"

    __hash__ = object.__hash__  # Enum's own is a Python call each time a member is looked up in a set


@dataclass(slots=True, eq=False)
class Caller:
    id: str
    pool: str
    label: str
    cost: int  # bytes it holds in memory while waiting
    seq: int
    arrived_at: float
    hold_s: float
    max_s: float
    phase: Phase = Phase.ARRIVING
    dials: int = 0
    pod: Pod | None = None  # of its dial or lease
    avoid: PodKey | None = None  # the incarnation that just failed it
    leased_at: float = 0.0
    expires_at: float = 0.0
    timer: Timer | None = None  # end of the hold, then end of the lease
    story: list[Line] = field(default_factory=list)

    @property
    def deadline(self) -> float:
        return self.arrived_at + self.hold_s


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
