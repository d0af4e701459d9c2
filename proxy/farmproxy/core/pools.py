"""The callers of one pool from arrival to end: held, granted, leased, ended.

Rules: first in, first out; no caller waits while a free pod exists; a failed dial is invisible (old place, old
deadline); every caller ends in exactly one way.
"""

from farmwire.reasons import FAULTS, Busy, DialResult, End, Refusal

from farmproxy.core.agent_polls import AgentPolls
from farmproxy.core.callers import Caller, Holds, Phase
from farmproxy.core.commands import AbandonDial, CloseSession, Dial, Refuse
from farmproxy.core.event_context import EventContext
from farmproxy.core.events import PodsChanged
from farmproxy.core.free_pods import Choice, FreePods
from farmproxy.core.limits import Limits
from farmproxy.core.pod_table import PodTable
from farmproxy.core.pods import DIALLING, Pod
from farmproxy.core.readiness import Readiness
from farmproxy.core.story import Ended, note

FOREVER = float("inf")
_NO_MEMORY = "the callers held take all the memory set for them"


class Pool:
    def __init__(
        self,
        name: str,
        limits: Limits,
        context: EventContext,
        callers: dict[str, Caller],
        ended: Ended,
        choice: Choice,
    ) -> None:
        self.name = name
        self.limits = limits
        self.holds = Holds()
        self.dialling = 0
        self.leases: dict[str, Caller] = {}
        self.agent_polls = AgentPolls(context, name, limits.ask_places, limits.ask_sample)
        self.pod_table = PodTable(context, self.agent_polls, FreePods(choice), ended)
        self.readiness = Readiness(context, limits, self.pod_table, self.agent_polls)
        self._context = context
        self._callers = callers  # of every pool, by id
        self._ended = ended

    # Callers

    def arrived(self, caller: Caller, *, door_closed: bool) -> None:
        self._callers[caller.id] = caller
        free = self.pod_table.free
        if door_closed:
            self._refuse(caller, Refusal.DRAINING, "the proxy is shutting down and takes no new callers")
        elif free:
            self._grant(caller, free.choose(None))
        elif caller.hold_s <= 0:
            self._refuse(caller, Refusal.NO_FREE_POD, f"no pod of pool {self.name} is free, and hold is 0")
        elif len(self.holds) >= self.limits.hold_limit:
            self._refuse(caller, Refusal.QUEUE_FULL, f"{len(self.holds)} callers are held already")
        elif self.holds.cost + caller.cost > self.limits.hold_bytes:
            self._refuse(caller, Refusal.QUEUE_FULL, _NO_MEMORY)
        else:
            self._hold(caller)

    def grew(self, caller: Caller, cost: int) -> None:
        """It is refused if what it sent does not fit, and nobody else is; who is being dialled is let finish."""
        if caller.phase is not Phase.HELD:
            caller.cost = cost
        elif self.holds.cost + cost - caller.cost <= self.limits.hold_bytes:
            self.holds.grow(caller, cost)
        else:
            self.holds.leave(caller)
            self._refuse(caller, Refusal.QUEUE_FULL, _NO_MEMORY)

    def left(self, caller: Caller) -> None:
        if caller.phase is Phase.HELD:
            self.holds.leave(caller)
        else:
            self._do(caller, AbandonDial(caller.id))
            self.readiness.give_back(self._end_dial(caller))
        self._end(caller)

    # Dials

    def dial_succeeded(self, caller: Caller) -> None:
        assert caller.pod is not None
        self.dialling -= 1
        self._stop_timer(caller)
        self.readiness.leased(caller.pod)
        caller.phase = Phase.LEASED
        caller.leased_at = self._context.now
        self.leases[caller.id] = caller
        self._expire_at(caller, self._context.now + caller.max_s)

    def dial_failed(self, caller: Caller, result: DialResult, busy: Busy | None) -> None:
        pod = self._end_dial(caller)
        if result in FAULTS:
            self.readiness.fault(pod)
        elif result is DialResult.BUSY:
            self.readiness.refused_busy(pod, busy)
        else:
            # The driver has answered the caller (scope "caller") or found it gone: nothing of it is left.
            self.readiness.give_back(pod)
            self._end(caller)
            return
        caller.avoid = pod.key
        self._requeue(caller)

    def _requeue(self, caller: Caller) -> None:
        """Back to its old place. A dial under way at the deadline was let finish, because its 101 may be a
        millisecond away and another caller would have to start over; after its failure there is no more time.
        """
        if caller.hold_s <= 0:
            if self.pod_table.free:
                self._grant(caller, self.pod_table.free.choose(caller.avoid))
            else:
                self._refuse(caller, Refusal.NO_FREE_POD, "every free pod failed the dial, and hold is 0")
        elif self._context.now >= caller.deadline:
            self._refuse_late(caller)
        else:
            self._hold(caller)

    # Leases

    def session_ended(self, caller: Caller) -> None:
        assert caller.pod is not None
        self._stop_timer(caller)
        del self.leases[caller.id]
        self.readiness.ended(caller.pod)
        self._end(caller)

    def renewed(self, caller: Caller, max_s: float) -> None:
        self._stop_timer(caller)
        self._expire_at(caller, self._context.now + max_s)

    def _expire_at(self, caller: Caller, at: float) -> None:
        caller.expires_at = at
        if at < FOREVER:
            caller.timer = self._context.timers.set(at, self._expired, caller)

    def _expired(self, caller: Caller) -> None:
        caller.timer = None
        caller.phase = Phase.CLOSING
        self._do(caller, CloseSession(caller.id, End.MAX))

    # Pods

    def pods_changed(self, event: PodsChanged) -> None:
        for seen in event.seen:
            self.readiness.seen(seen)
        for key in event.gone:
            self.readiness.gone(key)

    def settle(self) -> None:
        """Give every free pod to the caller whose turn it is, then ask where nothing is free. Runs after
        everything that may have changed either side.
        """
        holds, agent_polls = self.holds, self.agent_polls
        if holds.count:
            free = self.pod_table.free
            while holds.count and free:
                caller = holds.take()
                self._grant(caller, free.choose(caller.avoid))
        if holds.count or agent_polls.waiting:
            agent_polls.fill(starving=holds.count > 0)

    # Steps

    def _hold(self, caller: Caller) -> None:
        self.holds.add(caller)
        if caller.timer is None and caller.deadline < FOREVER:
            caller.timer = self._context.timers.set(caller.deadline, self._deadline, caller)

    def _deadline(self, caller: Caller) -> None:
        caller.timer = None
        if caller.phase is Phase.HELD:
            self.holds.leave(caller)
            self._refuse_late(caller)

    def _grant(self, caller: Caller, pod: Pod) -> None:
        now = self._context.now
        since = max(pod.free_since, caller.arrived_at)
        self.pod_table.move(pod, DIALLING, caller.id)
        pod.lease = caller.id
        pod.doubted = False
        caller.pod = pod
        caller.phase = Phase.DIALLING
        caller.dials += 1
        self.dialling += 1
        self._do(
            caller,
            Dial(
                caller.id,
                self.name,
                pod.key,
                pod.name,
                pod.address,
                pod.port,
                now - caller.arrived_at,
                caller.dials,
                caller.max_s,
                since,
            ),
        )

    def _end_dial(self, caller: Caller) -> Pod:
        pod = caller.pod
        assert pod is not None
        caller.pod = None
        self.dialling -= 1
        return pod

    def _refuse_late(self, caller: Caller) -> None:
        detail = f"no pod of pool {self.name} became free within {caller.hold_s:g} s"
        self._refuse(caller, Refusal.HOLD_TIMEOUT, detail)

    def _refuse(self, caller: Caller, reason: Refusal, detail: str) -> None:
        self._do(caller, Refuse(caller.id, reason, detail))
        self._end(caller)

    def _end(self, caller: Caller) -> None:
        self._stop_timer(caller)
        caller.phase = Phase.ENDED
        caller.pod = None
        del self._callers[caller.id]
        self._ended.keep(caller.id, caller.story)

    def _stop_timer(self, caller: Caller) -> None:
        if caller.timer is not None:
            self._context.timers.cancel(caller.timer)
            caller.timer = None

    def _do(self, caller: Caller, command: Dial | AbandonDial | Refuse | CloseSession) -> None:
        note(caller.story, (self._context.now, command))
        self._context.do(command)
