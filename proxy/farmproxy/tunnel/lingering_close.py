"""Lingering close: the last words to a peer are written whole, then FIN, then what it still sends is taken for a while.

Closing at once with unread input would make the kernel send RST, and the peer might never read what was written: a caller
that is still sending its body must be able to read its 413. Bounded in time, in bytes and in number.
"""

import socket
from collections.abc import Callable

from farmproxy.net.poller import BROKEN, READ, WRITE, Poller
from farmproxy.net.sockets import Socket
from farmproxy.net.timeouts import Timeouts

LINGER_S = 2.0  # without a byte from the peer
LONGEST_S = 30.0  # in all, as nginx's lingering_time
MOST = 1024  # at once, beyond that the oldest is closed: each holds a descriptor
_DISCARD_LIMIT = 16 * 1024 * 1024  # bytes that are still taken


class LingeringClose:
    """All sockets on their way out."""

    __slots__ = ("_longest", "_poller", "_silence")

    def __init__(self, poller: Poller, clock: Callable[[], float]) -> None:
        self._poller = poller
        self._silence: Timeouts[_Lingering] = Timeouts(LINGER_S, clock)
        self._longest: Timeouts[_Lingering] = Timeouts(LONGEST_S, clock)

    def say(self, sock: Socket, data: bytes) -> None:
        """Write ``data`` to a socket that the poller watches, and close it in the end. A closed one is left alone."""
        if sock.fileno() < 0:
            return
        if len(self) >= MOST:
            self._longest.oldest().close()
        lingering = _Lingering(self, self._poller, sock, data)
        self._longest.start(lingering)
        self.heard(lingering)
        lingering.begin()

    def heard(self, lingering: "_Lingering") -> None:
        """Its peer still takes or sends something."""
        self._silence.start(lingering)

    def over(self, lingering: "_Lingering") -> None:
        self._silence.stop(lingering)
        self._longest.stop(lingering)

    def sweep(self) -> None:
        for timeouts in (self._silence, self._longest):
            for lingering in timeouts.expired():
                lingering.close()

    def __len__(self) -> int:
        return len(self._longest)


class _Lingering:
    __slots__ = ("_all", "_data", "_discarded", "_poller", "sock")

    def __init__(self, all_: LingeringClose, poller: Poller, sock: Socket, data: bytes) -> None:
        self._all = all_
        self._poller = poller
        self._data = data
        self._discarded = 0
        self.sock = sock

    def begin(self) -> None:
        self._poller.hand_over(self.sock, self._on_ready)
        self._write()

    def _on_ready(self, mask: int) -> None:
        if mask & BROKEN:
            self.close()
        elif self._data:
            self._write()
        elif mask & READ:
            self._discard()

    def _write(self) -> None:
        try:
            sent = self.sock.send(self._data) if self._data else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self._data = self._data[sent:]
        if self._data:
            self._poller.change(self.sock, WRITE)
            return
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
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
        self._all.heard(self)
        if not data or self._discarded > _DISCARD_LIMIT:
            self.close()

    def close(self) -> None:
        self._all.over(self)
        self._poller.close(self.sock)
