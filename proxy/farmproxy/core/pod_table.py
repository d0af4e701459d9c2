"""The pods of one pool: their records, their moves along the table, and counts that are always right.

Rule: every change of state, known and terminating goes through here, so that counts and the order of free
pods cannot drift, and so that leaving a state ends what belonged to it (its timer, its question).
"""

from farmproxy.core.agent_polls import AgentPolls
from farmproxy.core.errors import IllegalTransition
from farmproxy.core.event_context import EventContext
from farmproxy.core.events import PodKey, PodSeen
from farmproxy.core.free_pods import FreePods
from farmproxy.core.pods import DIALLING, FREE, LEASED, TABLE, Pod, PodState, new_pod
from farmproxy.core.story import POD_LINES, Ended, note

BUSY_STATES = frozenset({DIALLING, LEASED})


class PodTable:
    def __init__(self, context: EventContext, agent_polls: AgentPolls, free: FreePods, ended: Ended) -> None:
        self._context = context
        self._agent_polls = agent_polls
        self._ended = ended
        self.free = free
        self.pods: dict[PodKey, Pod] = {}
        self.counts: dict[PodState, int] = dict.fromkeys(PodState, 0)  # known pods
        self.known = 0
        self.wanted = 0  # dialling or leased, known and not terminating: the pods' part of demand

    def add(self, seen: PodSeen) -> Pod:
        pod = new_pod(seen)
        state = FREE if pod.ready and not pod.terminating else PodState.UNREADY
        self.pods[pod.key] = pod
        pod.state = state
        self._count(pod, 1)
        self._enter(pod, state)
        return pod

    def move(self, pod: Pod, to: PodState, why: str) -> None:
        was = pod.state
        if (was, to) not in TABLE:
            raise IllegalTransition(f"pod {pod.key}: {was} to {to} ({why})")
        self._leave(pod)
        pod.state = to
        if pod.known:
            self.counts[was] -= 1
            self.counts[to] += 1
            if not pod.terminating:
                self.wanted += (to in BUSY_STATES) - (was in BUSY_STATES)
        self._enter(pod, to)
        note(pod.story, (self._context.now, to, why), POD_LINES)

    def forget(self, pod: Pod) -> None:
        if (pod.state, None) not in TABLE:
            raise IllegalTransition(f"pod {pod.key}: {pod.state} cannot be forgotten")
        self._leave(pod)
        self._count(pod, -1)
        del self.pods[pod.key]
        note(pod.story, (self._context.now, "gone", TABLE[pod.state, None]))
        self._ended.keep(pod.key, pod.story)

    def set_known(self, pod: Pod, known: bool) -> None:
        self._count(pod, -1)
        pod.known = known
        self._count(pod, 1)

    def set_terminating(self, pod: Pod, terminating: bool) -> None:
        self._count(pod, -1)
        pod.terminating = terminating
        self._count(pod, 1)

    def _count(self, pod: Pod, by: int) -> None:
        if pod.known:
            self.known += by
            self.counts[pod.state] += by
            if pod.state in BUSY_STATES and not pod.terminating:
                self.wanted += by

    def _leave(self, pod: Pod) -> None:
        if pod.timer is not None:
            self._context.timers.cancel(pod.timer)
            pod.timer = None
        if pod.ask is not None or pod.queue is not None:
            self._agent_polls.drop(pod)
        if pod.state is FREE:
            self.free.remove(pod)

    def _enter(self, pod: Pod, state: PodState) -> None:
        if state is FREE:
            pod.free_since = self._context.now
            self.free.add(pod)
