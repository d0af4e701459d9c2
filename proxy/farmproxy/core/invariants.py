"""What must hold after every event, checked against the records themselves and not against the counts.

Rule: a check here states a promise to callers or pods, or a book that two parts keep; it never repairs anything.
"""

from collections.abc import Mapping

from farmproxy.core.agent_polls import AgentPolls
from farmproxy.core.callers import Caller, Phase
from farmproxy.core.errors import BrokenInvariant
from farmproxy.core.pods import DIALLING, FREE, LEASED, RECYCLING, SET_ASIDE, UNREADY, AskKind, Pod, PodState
from farmproxy.core.pools import Pool

ASKED_IN = {
    AskKind.RECYCLE: RECYCLING,
    AskKind.DOUBT: FREE,
    AskKind.BUSY: UNREADY,
    AskKind.SET_ASIDE: SET_ASIDE,
}


def check(
    pools: Mapping[str, Pool], callers: Mapping[str, Caller], door_closed_at: int | None, timers: int
) -> None:
    """``timers``: how many are live. Raises BrokenInvariant."""
    owned = sum(caller.timer is not None for caller in callers.values())
    for pool in pools.values():
        mine = [caller for caller in callers.values() if caller.pool == pool.name]
        _check_pods(pool)
        _check_callers(pool, mine)
        _check_pairs(pool, mine)
        _check_agent_polls(pool.agent_polls, list(pool.pod_table.pods.values()))
        owned += sum(pod.timer is not None for pod in pool.pod_table.pods.values())
        agent_polls = pool.agent_polls
        owned += sum(
            timer is not None for timer in (agent_polls.wake, agent_polls.burst, agent_polls.turn_over)
        )
    _must(owned == timers, f"{timers} timers are set, {owned} belong to someone")
    for caller in callers.values():
        late = door_closed_at is not None and caller.seq > door_closed_at
        _must(not late, f"caller {caller.id} came after the door was closed and is still here")


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariant(what)


def _check_pods(pool: Pool) -> None:
    """The states add up to the known pods; free means leasable; what is unknown is in use or forgotten."""
    pod_table = pool.pod_table
    known = [pod for pod in pod_table.pods.values() if pod.known]
    _must(pod_table.known == len(known), f"{pod_table.known} pods counted, {len(known)} known")
    for state in PodState:
        count = sum(pod.state is state for pod in known)
        _must(pod_table.counts[state] == count, f"{pod_table.counts[state]} {state} counted, {count} are")
    wanted = sum(pod.state in (DIALLING, LEASED) and not pod.terminating for pod in known)
    _must(pod_table.wanted == wanted, f"{pod_table.wanted} pods counted in demand, {wanted} are")
    free = {key for key, pod in pod_table.pods.items() if pod.state is FREE}
    _must(
        len(free) == len(pod_table.free) and all(key in pod_table.free for key in free),
        "free pods and their order disagree",
    )
    for pod in pod_table.pods.values():
        _must(
            pod.leasable or pod.state not in (FREE, SET_ASIDE),
            f"pod {pod.key} is {pod.state}, yet terminating or gone",
        )
        _must(pod.known or pod.state in (DIALLING, LEASED, RECYCLING), f"pod {pod.key} is gone, yet kept")
        _must(pod.state is not SET_ASIDE or pod.timer is not None, f"pod {pod.key} is set aside for ever")
        waits = pod.ask is not None or pod.timer is not None
        _must(pod.state is not RECYCLING or waits, f"pod {pod.key} recycles and nobody asks")


def _check_callers(pool: Pool, callers: list[Caller]) -> None:
    """Nobody waits while a pod is free; the queue's books are right; who is here can still end."""
    held = [caller for caller in callers if caller.phase is Phase.HELD]
    _must(not (held and pool.pod_table.free), f"{len(held)} callers wait while a pod of {pool.name} is free")
    _must(len(pool.holds) == len(held), f"{len(pool.holds)} held counted, {len(held)} are")
    _must(pool.holds.cost == sum(caller.cost for caller in held), "the bytes of the held do not add up")
    order = pool.holds.in_order()
    _must(order == sorted(held, key=lambda caller: caller.seq), "the queue is not in order of arrival")
    for caller in callers:
        _must(
            caller.phase not in (Phase.ARRIVING, Phase.ENDED), f"caller {caller.id} is {caller.phase.value}"
        )
        timed = caller.timer is not None or caller.deadline == float("inf")
        _must(caller.phase is not Phase.HELD or timed, f"caller {caller.id} is held for ever")


def _check_pairs(pool: Pool, callers: list[Caller]) -> None:
    """At most one lease a pod and one a caller, and both sides agree which."""
    dialling = {caller.id: caller.pod for caller in callers if caller.phase is Phase.DIALLING}
    leased = {caller.id: caller.pod for caller in callers if caller.phase in (Phase.LEASED, Phase.CLOSING)}
    _must(pool.dialling == len(dialling), f"{pool.dialling} dials counted, {len(dialling)} are")
    _must(pool.leases.keys() == leased.keys(), "the leases and the leased callers disagree")
    for state, pairs in ((DIALLING, dialling), (LEASED, leased)):
        pods = {pod.lease: pod for pod in pool.pod_table.pods.values() if pod.state is state}
        count = sum(pod.state is state for pod in pool.pod_table.pods.values())
        _must(len(pods) == count, f"one caller on two pods that are {state}")
        _must(pods == pairs, f"callers and pods that are {state} disagree")
    for caller in callers:
        if caller.phase is Phase.HELD:
            _must(caller.pod is None, f"caller {caller.id} is held and has a pod")


def _check_agent_polls(agent_polls: AgentPolls, pods: list[Pod]) -> None:
    """A question belongs to a state; the samples keep their bounds; no pod that will never be free is lined up."""
    long = {pod.key for pod in pods if pod.ask is AskKind.BUSY}
    aside_open = sum(pod.ask is AskKind.SET_ASIDE for pod in pods)
    _must(agent_polls.long.keys() == long, f"{len(agent_polls.long)} long polls counted, {len(long)} are")
    _must(
        agent_polls.aside_open == aside_open,
        f"{agent_polls.aside_open} pods set aside counted asked, {aside_open} are",
    )
    _must(len(long) <= agent_polls.places, "more long polls than places")
    _must(aside_open <= agent_polls.sample, "more pods set aside are asked than the sample allows")
    queued = sum(map(len, (agent_polls.waiting, agent_polls.quiet, agent_polls.aside)))
    _must(queued == sum(pod.queue is not None for pod in pods), "pods and queues to be asked disagree")
    for pod in pods:
        if pod.ask is not None:
            _must(pod.state is ASKED_IN[pod.ask], f"pod {pod.key} is {pod.state} and asked for {pod.ask}")
        if pod.queue is not None:
            right = (
                pod.queue is agent_polls.aside
                if pod.state is SET_ASIDE
                else pod.queue is not agent_polls.aside
            )
            _must(pod.key in pod.queue and right, f"pod {pod.key} is in the wrong queue")
            _must(
                pod.leasable and pod.ask is None, f"pod {pod.key} is asked or out, yet lined up to be asked"
            )
            _must(pod.state in (UNREADY, SET_ASIDE), f"pod {pod.key} is {pod.state}, yet lined up")
