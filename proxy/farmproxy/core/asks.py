"""Which agents are asked whether they are free, and when.

Rules: one question a pod at a time; unready pods are asked by long poll, at most ``ask_sample`` at once; pods
set aside are asked only while callers are held and nothing is free, at most ``ask_sample`` at once and each at most
once a second; an answer "not free" that comes before its wait is over is followed by a growing pause, so that no
agent can make the proxy spin.
"""

from collections import OrderedDict

from farmproxy.core.commands import AskAgent, StopAsking
from farmproxy.core.events import PodKey
from farmproxy.core.pods import AskKind, Pod
from farmproxy.core.timers import Timer
from farmproxy.core.turns import Turn

LONG_ASK_S = 30.0  # an unready pod's long poll; longer ones gain nothing and hold a connection
PAUSE_S = 0.5  # the first pause
PAUSE_MAX_S = 2.0  # while the agent answers: a pod must not stay unused much longer than it is busy
PAUSE_LOST_MAX_S = 30.0  # while the agent cannot be asked
SETTLED_S = 1.0  # a question that took this long was no spin
SET_ASIDE_EVERY_S = 1.0

Queue = OrderedDict[PodKey, Pod]


class Asks:
    def __init__(self, turn: Turn, pool: str, sample: int) -> None:
        self._turn = turn
        self._pool = pool
        self.sample = sample
        self.waiting: Queue = OrderedDict()  # unready by the agent's word: asked always
        self.quiet: Queue = (
            OrderedDict()
        )  # unready otherwise: asked while callers are held and nothing is free
        self.aside: Queue = OrderedDict()  # set aside, by ask_after
        self.long_open = 0
        self.aside_open = 0
        self.wake: Timer | None = None  # for the next pod set aside

    def recycle(self, pod: Pod) -> None:
        """Ask until the recycle limit. A pod that will never be free again is asked once, at once, because the
        same question tells how the lease ended.
        """
        wait_s = max(0.0, pod.recycle_until - self._turn.now) if pod.leasable else 0.0
        self._ask(pod, AskKind.RECYCLE, wait_s, pod.lease)

    def doubt(self, pod: Pod) -> None:
        if pod.ask is None:
            self._ask(pod, AskKind.DOUBT, 0.0)

    def unready(self, pod: Pod, *, always: bool, delay_s: float = 0.0) -> None:
        """Line an unready pod up for its long poll, after a pause if told so."""
        pod.asked_always = always
        if delay_s > 0.0:
            pod.timer = self._turn.after(delay_s, self._line_up, pod)
        else:
            self._line_up(pod)

    def set_aside(self, pod: Pod) -> None:
        pod.ask_after = self._turn.now + SET_ASIDE_EVERY_S
        self._enqueue(pod, self.aside)

    def fill(self, starving: bool) -> None:
        """Use the open places. ``starving``: callers are held and nothing is free."""
        while self.long_open < self.sample:
            queue = self.waiting or (self.quiet if starving else None)
            if not queue:
                break
            pod = self._dequeue(next(iter(queue.values())))
            self.long_open += 1
            self._ask(pod, AskKind.BUSY, LONG_ASK_S)
        if starving and self.aside:
            self._fill_aside()

    def answered(self, pod: Pod) -> AskKind | None:
        """The answer has come: which question it was. Long questions end the growth of pauses."""
        kind = self._close(pod)
        if self._turn.now - pod.asked_at >= SETTLED_S:
            pod.pause_s = 0.0
        return kind

    def pause_after(self, pod: Pod, *, reached: bool) -> float:
        """Seconds to wait before the pod is asked again, 0 if its question took its full wait."""
        if self._turn.now - pod.asked_at >= max(pod.ask_wait_s, PAUSE_S):
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
            self._turn.do(StopAsking(self._pool, pod.key))

    def _fill_aside(self) -> None:
        now = self._turn.now
        while self.aside and self.aside_open < self.sample:
            pod = next(iter(self.aside.values()))
            if pod.ask_after > now:
                if self.wake is None:
                    self.wake = self._turn.timers.set(pod.ask_after, self._woken, None)
                return
            self._dequeue(pod)
            self.aside_open += 1
            self._ask(pod, AskKind.SET_ASIDE, 0.0)

    def _woken(self, _: None) -> None:
        """The farm settles every pool after a timer, and that fills the places."""
        self.wake = None

    def _ask(self, pod: Pod, kind: AskKind, wait_s: float, lease: str | None = None) -> None:
        pod.ask = kind
        pod.asked_at = self._turn.now
        pod.ask_wait_s = wait_s
        self._turn.do(AskAgent(self._pool, pod.key, pod.address, pod.port, wait_s, lease))

    def _close(self, pod: Pod) -> AskKind | None:
        kind, pod.ask = pod.ask, None
        if kind is AskKind.BUSY:
            self.long_open -= 1
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
