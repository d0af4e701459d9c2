"""The last words to a peer, mostly a refused caller: written whole, then FIN, then a short wait for the peer's own.

Closing at once with unread input would make the kernel send RST, and the peer might never read what was written.
"""

import socket
from collections.abc import Callable

from farmproxy.poller import BROKEN, READ, WRITE, Poller
from farmproxy.sockets import Socket
from farmproxy.timeouts import Timeouts

LINGER_S = 2.0
_DISCARD_LIMIT = (
    16 * 1024 * 1024
)  # bytes that are still taken: a refused body, what fits into two kernels' buffers


class Farewells:
    """All sockets on their way out."""

    __slots__ = ("_poller", "_timeouts")

    def __init__(self, poller: Poller, clock: Callable[[], float]) -> None:
        self._poller = poller
        self._timeouts: Timeouts[_Farewell] = Timeouts(LINGER_S, clock)

    def say(self, sock: Socket, data: bytes) -> None:
        """Write ``data`` to a socket that the poller watches, and close it in the end. A closed one is left alone."""
        if sock.fileno() < 0:
            return
        farewell = _Farewell(self._poller, self._timeouts, sock, data)
        self._timeouts.start(farewell)
        farewell.begin()

    def sweep(self) -> None:
        for farewell in self._timeouts.expired():
            self._poller.close(farewell.sock)

    def __len__(self) -> int:
        return len(self._timeouts)


class _Farewell:
    __slots__ = ("_data", "_discarded", "_poller", "_timeouts", "sock")

    def __init__(self, poller: Poller, timeouts: "Timeouts[_Farewell]", sock: Socket, data: bytes) -> None:
        self._poller = poller
        self._timeouts = timeouts
        self._data = data
        self._discarded = 0
        self.sock = sock

    def begin(self) -> None:
        self._poller.hand_over(self.sock, self._on_ready)
        self._write()

    def _on_ready(self, mask: int) -> None:
        if mask & BROKEN:
            self._close()
        elif self._data:
            self._write()
        elif mask & READ:
            self._discard()

    def _write(self) -> None:
        try:
            sent = self.sock.send(self._data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close()
            return
        self._data = self._data[sent:]
        if self._data:
            self._poller.change(self.sock, WRITE)
            return
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close()
            return
        self._poller.change(self.sock, READ)

    def _discard(self) -> None:
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._discarded += len(data)
        if not data or self._discarded > _DISCARD_LIMIT:
            self._close()

    def _close(self) -> None:
        self._timeouts.stop(self)
        self._poller.close(self.sock)
