"""What the core shows of itself: cheap counts for metrics, a full picture for /status."""

from dataclasses import dataclass

from farmproxy.core.callers import Caller
from farmproxy.core.pods import DIALLING, LEASED, SET_ASIDE, Pod
from farmproxy.core.pools import Pool


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """``pods`` has every state as key; terminating pods are counted in their state too."""

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


def demand_of(pool: Pool) -> int:
    """Held, and dialling and leased on pods that are known and not terminating: what the HPA reads."""
    return len(pool.holds) + pool.pod_table.wanted


def counts_of(pool: Pool) -> PoolCounts:
    return PoolCounts(
        demand=demand_of(pool),
        leases=len(pool.leases),
        held=len(pool.holds),
        pods={str(state): count for state, count in pool.pod_table.counts.items()},
    )


def view_of(pool: Pool, now: float) -> PoolView:
    """Pods that no slice has any more are left out; their leases are not."""
    return PoolView(
        demand=demand_of(pool),
        pods=[_pod(pod, now) for pod in pool.pod_table.pods.values() if pod.known],
        held=[_held(caller, now) for caller in pool.holds.in_order()],
        leases=[_lease(caller, now) for caller in pool.leases.values()],
    )


def _pod(pod: Pod, now: float) -> PodView:
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    return PodView(
        uid=pod.key,
        name=pod.name,
        address=f"{host}:{pod.port}",
        state=str(pod.state),
        terminating=pod.terminating,
        lease=pod.lease if pod.state in (DIALLING, LEASED) else None,
        faults=pod.faults,
        set_aside_s=max(0.0, pod.aside_until - now) if pod.state is SET_ASIDE else 0.0,
    )


def _held(caller: Caller, now: float) -> HeldView:
    return HeldView(
        id=caller.id,
        label=caller.label,
        waited_s=now - caller.arrived_at,
        left_s=max(0.0, caller.deadline - now),
        dials=caller.dials,
    )


def _lease(caller: Caller, now: float) -> LeaseView:
    assert caller.pod is not None
    return LeaseView(
        id=caller.id,
        label=caller.label,
        pod=caller.pod.name,
        age_s=now - caller.leased_at,
        left_s=max(0.0, caller.expires_at - now),
    )
