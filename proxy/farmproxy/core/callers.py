"""A caller from arrival to its one end: held, dialling, leased. The lease it gets has the caller's id.

Rule: ``seq`` is its place in the order of arrival and ``deadline`` the end of its hold; neither ever changes.
"""

from dataclasses import dataclass, field
from enum import Enum

from farmproxy.core.events import PodKey
from farmproxy.core.pods import Pod
from farmproxy.core.story import Line
from farmproxy.core.timers import Timer


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
