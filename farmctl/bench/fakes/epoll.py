"""The loop that the load generators stand on: one epoll, one timer heap, callbacks and nothing else.

It is leaner than asyncio because a generator that is busier than the proxy would measure itself.
"""

import heapq
import select
import socket
import time
from collections.abc import Callable
from itertools import count

Ready = Callable[[int], None]  # called with the epoll mask

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
BROKEN = select.EPOLLHUP | select.EPOLLERR


class Timer:
    """A call at a moment of the monotonic clock; ``cancel`` makes it a no-op."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Runs until ``stop``. Times are seconds of time.monotonic; epoll rounds waits up to a millisecond."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._ready: dict[int, Ready] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._running = False

    def watch(self, fd: int, ready: Ready, mask: int = READ) -> None:
        self._ready[fd] = ready
        self._poll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        self._poll.modify(fd, mask)

    def forget(self, sock: socket.socket) -> None:
        """Close the socket; epoll drops a closed descriptor by itself."""
        del self._ready[sock.fileno()]
        sock.close()

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(call)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def after(self, delay_s: float, call: Callable[[], None]) -> Timer:
        return self.at(time.monotonic() + delay_s, call)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._running = True
        poll, ready = self._poll.poll, self._ready
        while self._running:
            for fd, mask in poll(self._run_timers(), 256):
                call = ready.get(fd)
                if call is not None:
                    call(mask)

    def _run_timers(self) -> float:
        """Run what is due; return the seconds until the next timer, or a second."""
        timers = self._timers
        now = time.monotonic()
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            if timer.call is not None:
                timer.call()
        return min(1.0, max(0.0, timers[0][0] - time.monotonic())) if timers else 1.0
