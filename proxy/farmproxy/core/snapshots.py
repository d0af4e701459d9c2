"""What the core shows of itself: cheap counts for metrics, a full picture for /status."""

from dataclasses import dataclass

STATES = ("unready", "free", "dialling", "leased", "recycling", "set-aside")


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """``pods`` has every state of STATES as key; terminating pods are counted in their state too."""

    demand: int
    leases: int
    held: int
    pods: dict[str, int]


@dataclass(frozen=True, slots=True)
class PodView:
    uid: str
    name: str
    address: str  # host:port, IPv6 bracketed
    state: str
    terminating: bool
    lease: str | None
    faults: int
    set_aside_s: float  # seconds left, 0 when not set aside


@dataclass(frozen=True, slots=True)
class HeldView:
    id: str
    label: str
    waited_s: float
    left_s: float
    dials: int


@dataclass(frozen=True, slots=True)
class LeaseView:
    id: str
    label: str
    pod: str  # the pod's name
    age_s: float
    left_s: float


@dataclass(frozen=True, slots=True)
class PoolView:
    demand: int
    pods: list[PodView]
    held: list[HeldView]
    leases: list[LeaseView]
