"""What can happen to a farm, as plain values. ``Farm.handle(event, now)`` is their only reader.

Times are seconds of one monotonic clock (float). A caller and the lease it gets share one id.
They are msgspec structs: making one costs a tenth of what a frozen dataclass costs, at several a lease.
"""

import msgspec
from farmwire.reasons import Busy, DialResult, End

PodKey = str  # the pod's UID, else "address:port" for an endpoint without targetRef


class PodSeen(msgspec.Struct, frozen=True, gc=False):
    """One pod as the union of all EndpointSlices says now; ``fresh_ready`` when this very change went
    from not-ready to ready in some slice (a list after a gap proves no such change).
    """

    key: PodKey
    name: str
    address: str
    port: int
    ready: bool
    terminating: bool
    fresh_ready: bool = False


class PodsChanged(msgspec.Struct, frozen=True, gc=False):
    """Slices said something new about a pool: pods as they are now, and keys that no slice has any more."""

    pool: str
    seen: tuple[PodSeen, ...] = ()
    gone: tuple[PodKey, ...] = ()


class CallerArrived(msgspec.Struct, frozen=True, gc=False):
    """A caller asks for a lease. ``hold_s`` 0 means do not hold; ``max_s`` is the lease's longest time.
    ``cost`` is what it holds in memory while waiting (bytes), counted against the hold budget.
    """

    id: str
    pool: str
    hold_s: float
    max_s: float
    label: str = ""
    cost: int = 0


class CallerGrew(msgspec.Struct, frozen=True, gc=False):
    """More of the caller's bytes have come while it waits: it holds ``cost`` bytes of memory now."""

    id: str
    cost: int


class CallerLeft(msgspec.Struct, frozen=True, gc=False):
    """The caller's connection ended before its session began."""

    id: str


class DialSucceeded(msgspec.Struct, frozen=True, gc=False):
    """101 received from the right pod, and the caller's first bytes written (or none are due)."""

    id: str


class DialFailed(msgspec.Struct, frozen=True, gc=False):
    """The dial brought no session. ``busy`` is set with DialResult.BUSY only."""

    id: str
    result: DialResult
    busy: Busy | None = None


class SessionEnded(msgspec.Struct, frozen=True, gc=False):
    """The lease's connection is closed (or the driver was told to close it and did)."""

    id: str
    end: End


class LeaseRenewed(msgspec.Struct, frozen=True, gc=False):
    """The lease may now last ``max_s`` from this moment."""

    id: str
    max_s: float


class AgentSaid(msgspec.Struct, frozen=True, gc=False):
    """Answer to AskAgent. ``free`` None: the agent could not be asked (refused, silent, garbage)."""

    pool: str
    pod: PodKey
    free: bool | None
    busy: Busy | None = None


class TimePassed(msgspec.Struct, frozen=True, gc=False):
    """The moment asked for by WakeAt has come (early or late wakes are harmless)."""


class DoorClosed(msgspec.Struct, frozen=True, gc=False):
    """Drain: new callers are refused from now on; the held go on to their deadlines."""


Event = (
    PodsChanged
    | CallerArrived
    | CallerGrew
    | CallerLeft
    | DialSucceeded
    | DialFailed
    | SessionEnded
    | LeaseRenewed
    | AgentSaid
    | TimePassed
    | DoorClosed
)
