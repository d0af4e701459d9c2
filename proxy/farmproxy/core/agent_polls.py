"""Which agents are asked whether they are free, and when.

Rules: one question a pod at a time; pods that are unready by their agent's word are asked by long poll always, the other
unready ones while callers are held and nothing is free; all of them where ``ask_places`` are enough, else, for those
callers, in turns so short that each has one within WITHIN_S; long polls begin at a bounded pace; pods set aside are asked
only while callers are held and nothing is free, at most ``ask_sample`` at once and each at most once a second; an answer
"not free" that comes before its wait is over is followed by a growing pause, so that no agent can make the proxy spin.
"""

from collections import OrderedDict

from farmproxy.core.commands import AskAgent, StopAsking
from farmproxy.core.event_context import EventContext, Timer
from farmproxy.core.events import PodKey
from farmproxy.core.pods import AskKind, Pod

LONG_ASK_S = 30.0  # an unready pod's long poll; longer ones gain nothing
WITHIN_S = 3.5  # while callers are held: a round of all unready pods, where the places are too few
GRACE_S = 1.0  # for an answer to come after its wait, before its place is taken by another
BURST = 16  # questions begun at once: a thousand would stop the relay for a tenth of a second
BURST_EVERY_S = 0.02
PAUSE_S = 0.5  # the first pause
PAUSE_MAX_S = 2.0  # while the agent answers: a pod must not stay unused much longer than it is busy
PAUSE_LOST_MAX_S = 30.0  # while the agent cannot be asked
SETTLED_S = 1.0  # a question that took this long was no spin
SET_ASIDE_EVERY_S = 1.0

Queue = OrderedDict[PodKey, Pod]


class AgentPolls:
    def __init__(self, context: EventContext, pool: str, places: int, sample: int) -> None:
        self._context = context
        self._pool = pool
        self.places = places
        self.sample = sample
        self.waiting: Queue = OrderedDict()  # unready by the agent's word: asked always
        self.quiet: Queue = (
            OrderedDict()
        )  # unready otherwise: asked while callers are held and nothing is free
        self.aside: Queue = OrderedDict()  # set aside, by ask_after
        self.long: Queue = OrderedDict()  # under their long poll, the oldest first
        self.aside_open = 0
        self.wake: Timer | None = None  # for the next pod set aside
        self.burst: Timer | None = None  # until it rings no long poll begins
        self.turn_over: Timer | None = None  # for the oldest long poll, where others need its place

    def recycle(self, pod: Pod) -> None:
        """Ask until the recycle limit. A pod that will never be free again is asked once, at once, because the
        same question tells how the lease ended.
        """
        wait_s = max(0.0, pod.recycle_until - self._context.now) if pod.leasable else 0.0
        self._ask(pod, AskKind.RECYCLE, wait_s, pod.lease)

    def doubt(self, pod: Pod) -> None:
        if pod.ask is None:
            self._ask(pod, AskKind.DOUBT, 0.0)

    def unready(self, pod: Pod, *, always: bool, delay_s: float = 0.0) -> None:
        """Line an unready pod up for its long poll, after a pause if told so."""
        pod.asked_always = always
        if delay_s > 0.0:
            pod.timer = self._context.after(delay_s, self._line_up, pod)
        else:
            self._line_up(pod)

    def set_aside(self, pod: Pod) -> None:
        pod.ask_after = self._context.now + SET_ASIDE_EVERY_S
        self._enqueue(pod, self.aside)

    def fill(self, starving: bool) -> None:
        """Use the open places. ``starving``: callers are held and nothing is free."""
        if self.burst is None and (self.waiting or (starving and self.quiet)):
            self._fill_long(starving)
        if starving and self.aside:
            self._fill_aside()

    def answered(self, pod: Pod) -> AskKind | None:
        """The answer has come: which question it was. Long questions end the growth of pauses."""
        kind = self._close(pod)
        if self._context.now - pod.asked_at >= SETTLED_S:
            pod.pause_s = 0.0
        return kind

    def pause_after(self, pod: Pod, *, reached: bool) -> float:
        """Seconds to wait before the pod is asked again, 0 if its question took its full wait (two clocks measure it)."""
        if self._context.now - pod.asked_at >= (0.9 * pod.ask_wait_s or PAUSE_S):
            return 0.0
        return self.grow_pause(pod, PAUSE_MAX_S if reached else PAUSE_LOST_MAX_S)

    def grow_pause(self, pod: Pod, most_s: float = PAUSE_MAX_S) -> float:
        pod.pause_s = min(most_s, max(PAUSE_S, pod.pause_s * 2))
        return pod.pause_s

    def drop(self, pod: Pod) -> None:
        """The pod leaves the state it was asked in, or shall not be asked any more."""
        if pod.queue is not None:
            self._dequeue(pod)
        if pod.ask is not None:
            self._close(pod)
            self._context.do(StopAsking(self._pool, pod.key))

    def _fill_long(self, starving: bool) -> None:
        to_ask = len(self.waiting) + (len(self.quiet) if starving else 0)
        in_all = len(self.long) + to_ask
        crowded = starving and in_all > self.places
        wait_s = WITHIN_S * self.places / in_all if crowded else LONG_ASK_S
        for _ in range(min(BURST, to_ask)):
            if len(self.long) >= self.places and not (crowded and self._end_turn(wait_s)):
                return
            pod = self._dequeue(self._next_long(starving))
            self.long[pod.key] = pod
            self._ask(pod, AskKind.BUSY, wait_s)
        if to_ask > BURST:
            self.burst = self._context.after(BURST_EVERY_S, self._burst_over, None)

    def _next_long(self, starving: bool) -> Pod:
        """The one that was not asked for the longest."""
        queues = (self.waiting, self.quiet) if starving else (self.waiting,)
        return min((next(iter(queue.values())) for queue in queues if queue), key=lambda pod: pod.asked_at)

    def _end_turn(self, wait_s: float) -> bool:
        """Whether the oldest long poll, begun when there was more room, could be ended for another."""
        oldest = next(iter(self.long.values()))
        left_s = oldest.asked_at + wait_s + GRACE_S - self._context.now
        if left_s > 0.0:
            if self.turn_over is None:
                self.turn_over = self._context.after(left_s, self._turn_is_over, None)
            return False
        self.drop(oldest)
        self._line_up(oldest)
        return True

    def _burst_over(self, _: None) -> None:
        self.burst = None

    def _turn_is_over(self, _: None) -> None:
        self.turn_over = None

    def _fill_aside(self) -> None:
        now = self._context.now
        while self.aside and self.aside_open < self.sample:
            pod = next(iter(self.aside.values()))
            if pod.ask_after > now:
                if self.wake is None:
                    self.wake = self._context.timers.set(pod.ask_after, self._woken, None)
                return
            self._dequeue(pod)
            self.aside_open += 1
            self._ask(pod, AskKind.SET_ASIDE, 0.0)

    def _woken(self, _: None) -> None:
        """The farm settles every pool after a timer, and that fills the places."""
        self.wake = None

    def _ask(self, pod: Pod, kind: AskKind, wait_s: float, lease: str | None = None) -> None:
        pod.ask = kind
        pod.asked_at = self._context.now
        pod.ask_wait_s = wait_s
        self._context.do(AskAgent(self._pool, pod.key, pod.address, pod.port, wait_s, lease))

    def _close(self, pod: Pod) -> AskKind | None:
        kind, pod.ask = pod.ask, None
        if kind is AskKind.BUSY:
            del self.long[pod.key]
        elif kind is AskKind.SET_ASIDE:
            self.aside_open -= 1
        return kind

    def _line_up(self, pod: Pod) -> None:
        pod.timer = None
        self._enqueue(pod, self.waiting if pod.asked_always else self.quiet)

    def _enqueue(self, pod: Pod, queue: Queue) -> None:
        queue[pod.key] = pod
        pod.queue = queue

    def _dequeue(self, pod: Pod) -> Pod:
        assert pod.queue is not None
        del pod.queue[pod.key]
        pod.queue = None
        return pod
