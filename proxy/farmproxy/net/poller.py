"""Readiness of the data path's sockets: one epoll of its own, watched by the event loop as a single descriptor.

The loop wakes once for a batch of ready sockets, whose handlers are plain calls: no task, future or handle a
connection. A closed socket is really closed only after the batch, so a stale event never reaches a new socket that
got the same number.
"""

import asyncio
import select
import socket
from collections.abc import Callable

from farmproxy.net.sockets import Socket

READ = select.EPOLLIN | select.EPOLLRDHUP
WRITE = select.EPOLLOUT
GONE = select.EPOLLRDHUP  # the peer sent FIN
BROKEN = select.EPOLLERR | select.EPOLLHUP  # always reported, asked for or not

Handler = Callable[[int], None]

_BATCH = 64  # events handled before the loop gets its turn, and before closed sockets, so pods, are let go


class Poller:
    """``handlers``: by descriptor, so that their number is that of the sockets watched.

    Level-triggered: what a handler leaves unread is reported again. ``on_bug`` gets what a handler raised: one
    connection's fault never stops the others.
    """

    __slots__ = ("_epoll", "_graveyard", "_in_batch", "_loop", "_on_bug", "_socks", "handlers")

    def __init__(self, on_bug: Callable[[BaseException, Handler], None]) -> None:
        self._epoll = select.epoll()
        self.handlers: dict[int, Handler] = {}
        self._socks: dict[int, Socket] = {}
        self._graveyard: list[Socket] = []
        self._in_batch = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_bug = on_bug

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._epoll.fileno(), self._run_batch)

    def stop(self) -> None:
        """Close every socket and watch nothing any more."""
        for sock in list(self._socks.values()):
            self.close(sock)
        if self._loop is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._loop = None
        self._bury()
        self._epoll.close()

    def watch(self, sock: Socket, mask: int, handler: Handler) -> None:
        fd = sock.fileno()
        self._epoll.register(fd, mask)
        self.handlers[fd] = handler
        self._socks[fd] = sock

    def change(self, sock: Socket, mask: int) -> None:
        self._epoll.modify(sock.fileno(), mask)

    def hand_over(self, sock: Socket, handler: Handler) -> None:
        """Let another handler have the socket's events, the mask unchanged."""
        self.handlers[sock.fileno()] = handler

    def close(self, sock: Socket) -> None:
        """Forget and close the socket; harmless for a closed one."""
        fd = sock.fileno()
        if fd < 0 or self.handlers.pop(fd, None) is None:
            return
        del self._socks[fd]
        self._graveyard.append(sock)
        if not self._in_batch:
            self._bury()

    def abort(self, sock: Socket) -> None:
        """Close with RST, so that what was sent so far cannot pass for a whole answer."""
        if sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self.close(sock)

    def catch_up(self) -> None:
        """Handle whatever is ready now, each socket about once: before anybody is told that its time is up."""
        for _ in range(len(self.handlers) // _BATCH + 1):
            if self._run_batch() < _BATCH:
                return

    def _run_batch(self) -> int:
        handlers = self.handlers
        self._in_batch = True
        try:
            ready = self._epoll.poll(0, _BATCH)
            for fd, mask in ready:
                handler = handlers.get(fd)
                if handler is None:
                    continue
                try:
                    handler(mask)
                except Exception as error:
                    self._on_bug(error, handlers.get(fd, handler))  # who has the socket now gives it up
            return len(ready)
        finally:
            self._in_batch = False
            self._bury()

    def _bury(self) -> None:
        graveyard = self._graveyard
        while graveyard:
            graveyard.pop().close()


_LINGER_NONE = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # struct linger {1, 0}: close() sends RST
