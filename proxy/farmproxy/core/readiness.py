"""What counts as free, strongest first: our own lease table; removed or terminating (never free); the
agent's word; the slice. Every fact about a pod but a grant is judged here.

Rule: slices admit pods and, at size, lag by seconds and carry no time, so age is never guessed: "not ready" overrules
the agent's "free" only if a slice has shown ready since that word; otherwise the agent is asked and believed.
"""

from farmwire.reasons import Busy

from farmproxy.core.agent_polls import AgentPolls
from farmproxy.core.event_context import EventContext
from farmproxy.core.events import PodSeen
from farmproxy.core.limits import Limits
from farmproxy.core.pod_table import PodTable
from farmproxy.core.pods import (
    DIALLING,
    ENGAGED,
    FREE,
    LEASED,
    RECYCLING,
    SET_ASIDE,
    UNREADY,
    AskKind,
    Pod,
)


def next_aside_s(pod: Pod, limits: Limits, *, others_aside: int, known: int) -> float:
    """Length of the set-aside that begins now. ``others_aside`` leaves this pod out, else the one dead address
    in a pool of two or three would be retried every 2 s for ever.
    """
    if pod.aside_s <= 0.0:
        return min(limits.set_aside_s, limits.set_aside_max_s)
    if others_aside * 3 >= known:
        return pod.aside_s
    return min(pod.aside_s * 2, limits.set_aside_max_s)


def clear_faults(pod: Pod) -> None:
    """After a success, or a slice seen going from not ready to ready. (A new UID is a new record.)"""
    pod.faults = 0
    pod.aside_s = 0.0


class Readiness:
    def __init__(
        self, context: EventContext, limits: Limits, pod_table: PodTable, agent_polls: AgentPolls
    ) -> None:
        self._context = context
        self._limits = limits
        self._pod_table = pod_table
        self._agent_polls = agent_polls

    # The slices' word

    def seen(self, seen: PodSeen) -> None:
        pod = self._pod_table.pods.get(seen.key)
        if pod is None:
            self._pod_table.add(seen)
            return
        turned = self._remember(pod, seen)
        if pod.terminating:
            if pod.state not in ENGAGED:
                self._retire(pod)
        elif pod.state is UNREADY:
            if turned is True:
                self._free(pod, "a slice turned to ready")
        elif pod.state is FREE:
            self._seen_free(pod, turned)
        elif pod.state is SET_ASIDE:
            if seen.fresh_ready:
                self._free(pod, "a slice turned to ready")
        elif pod.state is DIALLING and turned is False:
            pod.doubted = True

    def gone(self, key: str) -> None:
        """No slice has it. A live dial or lease goes on, and so does the question how a lease ended."""
        pod = self._pod_table.pods.get(key)
        if pod is None or not pod.known:
            return
        if pod.state in (DIALLING, LEASED) or pod.ask is AskKind.RECYCLE:
            self._pod_table.set_known(pod, known=False)
        else:
            self._pod_table.forget(pod)

    def _remember(self, pod: Pod, seen: PodSeen) -> bool | None:
        """Take the flags over; True: turned to ready, False: turned to not ready, None: neither."""
        was_ready, was_out = pod.ready, not pod.leasable
        pod.name, pod.address, pod.port = seen.name, seen.address, seen.port
        pod.ready = seen.ready
        if seen.ready:
            pod.ready_since_word = True
        if seen.fresh_ready:
            clear_faults(pod)
            pod.pause_s = 0.0
        if not pod.known:
            self._pod_table.set_known(pod, known=True)
        # A pod's deletion is never taken back (a slice that says so is a stale twin), an address's may be.
        terminating = seen.terminating or (pod.terminating and not pod.keyed_by_address)
        if terminating is not pod.terminating:
            self._pod_table.set_terminating(pod, terminating)
        if seen.ready:
            return True if seen.fresh_ready or not was_ready or was_out else None
        return False if was_ready else None

    def _seen_free(self, pod: Pod, turned: bool | None) -> None:
        if turned is not False:
            if pod.ready:
                self._pod_table.free.confirm(pod)
        elif pod.fit:
            # It stays free meanwhile: should it be granted and be busy, the 409 costs nobody anything.
            self._agent_polls.doubt(pod)
        else:
            self._unready(pod, "a slice turned to not ready")

    # The agent's word

    def said(self, pod: Pod, free: bool | None, busy: Busy | None) -> None:
        kind = self._agent_polls.answered(pod)
        if free is not None:
            pod.heard(free)
        if free and pod.leasable:
            if pod.state is FREE:
                self._pod_table.free.confirm(pod)
            else:
                self._free(pod, "its agent says free")
        elif kind is AskKind.RECYCLE:
            self._still_recycling(pod, free, busy)
        elif kind is AskKind.DOUBT:
            self._unready(pod, "a slice says not ready and its agent does not say free", busy=busy)
        elif kind is AskKind.BUSY:
            self._still_unready(pod, free, busy)
        elif free is None:
            self._agent_polls.set_aside(pod)
        else:
            # It lives and is busy: its own word will bring it back sooner than the clock.
            self._unready(pod, "its agent says not free", always=True, busy=busy)

    def _still_recycling(self, pod: Pod, free: bool | None, busy: Busy | None) -> None:
        """Ask again until the limit. So too when the agent cannot be asked: a container that restarts in its pod
        answers within seconds under the same UID, and a dead one costs a refused connection now and then until its
        slice drops it. No set-aside, because its end would send a caller to dial what is most likely dead.
        """
        if not pod.known:
            self._pod_table.forget(pod)
            return
        pause_s = self._agent_polls.pause_after(pod, reached=free is not None)
        again_at = self._context.now + pause_s
        if pod.terminating or busy is Busy.DRAINING or again_at >= pod.recycle_until:
            self._unready(pod, "not clean within the recycle limit, or draining", busy=busy)
        else:
            pod.timer = self._context.after(pause_s, self._recycle_again, pod)

    def _recycle_again(self, pod: Pod) -> None:
        pod.timer = None
        self._agent_polls.recycle(pod)

    def _still_unready(self, pod: Pod, free: bool | None, busy: Busy | None) -> None:
        if busy is not Busy.DRAINING:
            pause_s = self._agent_polls.pause_after(pod, reached=free is not None)
            self._agent_polls.unready(pod, always=pod.asked_always, delay_s=pause_s)

    # The dial's and the lease's word

    def refused_busy(self, pod: Pod, busy: Busy | None) -> None:
        """A 409: the agent's word, no fault. The first is followed by a question at once, the next ones by growing
        pauses, else an agent that says free and answers 409 would make callers spin.
        """
        pod.heard(False)
        delay_s = pod.pause_s
        self._agent_polls.grow_pause(pod)
        if pod.known:
            self._unready(pod, f"409 {busy or ''}".rstrip(), always=True, delay_s=delay_s, busy=busy)
        else:
            self._pod_table.forget(pod)

    def give_back(self, pod: Pod) -> None:
        """The dial ended without a lease and without a word against the pod."""
        if not pod.known:
            self._pod_table.forget(pod)
        elif pod.terminating or not pod.fit:
            self._unready(pod, "given back while terminating or not ready")
        else:
            self._free(pod, "given back unused")
            if pod.doubted and not pod.ready:
                self._agent_polls.doubt(pod)

    def fault(self, pod: Pod) -> None:
        pod.faults += 1
        pod.heard(None)
        if not pod.known:
            self._pod_table.forget(pod)
            return
        if pod.terminating:
            self._unready(pod, "a fault while terminating")
            return
        pod_table = self._pod_table
        pod.aside_s = next_aside_s(
            pod, self._limits, others_aside=pod_table.counts[SET_ASIDE], known=pod_table.known
        )
        pod.aside_until = self._context.now + pod.aside_s
        pod_table.move(pod, SET_ASIDE, f"fault {pod.faults}, for {pod.aside_s:g} s")
        pod.timer = self._context.after(pod.aside_s, self._aside_over, pod)
        self._agent_polls.set_aside(pod)

    def _aside_over(self, pod: Pod) -> None:
        pod.timer = None
        if pod.fit:
            self._free(pod, "its set-aside is over and the slice says ready")
        else:
            self._unready(pod, "its set-aside is over and the slice says not ready")

    def leased(self, pod: Pod) -> None:
        self._pod_table.move(pod, LEASED, "101")
        clear_faults(pod)
        pod.pause_s = 0.0
        pod.heard(None)  # it said "yours", which overtakes any "free" of before

    def ended(self, pod: Pod) -> None:
        self._pod_table.move(pod, RECYCLING, "the session ended")
        pod.recycle_until = self._context.now + self._limits.recycle_s
        self._agent_polls.recycle(pod)

    # Moves

    def _free(self, pod: Pod, why: str) -> None:
        pod.lease = None
        self._pod_table.move(pod, FREE, why)

    def _unready(
        self, pod: Pod, why: str, *, always: bool = False, delay_s: float = 0.0, busy: Busy | None = None
    ) -> None:
        """Only a pod that a slice once admitted comes here, so no other is ever asked; nor is one that will never
        be free again.
        """
        pod.lease = None
        self._pod_table.move(pod, UNREADY, why)
        if not pod.terminating and busy is not Busy.DRAINING:
            self._agent_polls.unready(pod, always=always, delay_s=delay_s)

    def _retire(self, pod: Pod) -> None:
        """Terminating and not in use: never leased again, never asked again."""
        if pod.state is UNREADY:
            self._agent_polls.drop(pod)
            if pod.timer is not None:
                self._context.timers.cancel(pod.timer)
                pod.timer = None
        else:
            self._unready(pod, "terminating")
