"""The door's listening socket: takes connections in bounded batches, refuses them before descriptors run out."""

import asyncio
import contextlib
import errno

from farmwire.reasons import Refusal

from farmproxy.door import answers
from farmproxy.door.api import LeasesApi
from farmproxy.door.connections import Connection
from farmproxy.door.door import Door
from farmproxy.poller import READ
from farmproxy.setting_values import HostPort
from farmproxy.sockets import EXHAUSTED_ERRNOS, Socket, accept, listen

_BATCH = 16  # accepts, each with its head, before others get their turn: pods that turned free above all
_FEW = 4  # while callers are held: a newcomer has to wait anyway, here or in the kernel
_PAUSE_S = 0.1  # after an accept that failed for want of descriptors or memory
_ACCEPT = READ & ~0x2000  # EPOLLIN alone: a listening socket has no peer to hang up


class Listener:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._api = LeasesApi(door)
        self._sock: Socket | None = None
        self._family = 0
        self._paused: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        return self._sock is not None

    def start(self, address: HostPort, *, keepalive_s: float) -> HostPort:
        """Listen; gives the address bound (port 0 asks the system for one). OSError when it is taken."""
        self._sock = listen(address.host, address.port, keepalive_s=keepalive_s)
        self._family = self._sock.family
        self._door.poller.watch(self._sock, _ACCEPT, self._on_ready)
        host, port = self._sock.getsockname()[:2]
        bound = HostPort(host, port)
        self._door.local = str(bound)
        return bound

    def stop(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
        if self._sock is not None:
            self._door.poller.close(self._sock)
            self._sock = None

    def _on_ready(self, _mask: int) -> None:
        listening = self._sock
        if listening is None:
            return
        for _ in range(_FEW if self._door.driver.waiting > 0 else _BATCH):
            try:
                sock, peer = accept(listening, self._family)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED_ERRNOS:
                    self._pause(listening)
                    return
                if error.errno in {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH}:
                    continue  # that connection is gone already (accept(2))
                raise
            self._welcome(sock, peer)

    def _welcome(self, sock: Socket, peer: str) -> None:
        door = self._door
        if door.room() <= 0:
            door.metrics.refusals[Refusal.DESCRIPTORS].inc()
            with contextlib.suppress(OSError):
                sock.send(answers.refusal(Refusal.DESCRIPTORS, "the proxy has no descriptor left"))
            sock.close()
            return
        connection = Connection(door, self._api, sock, peer)
        door.poller.watch(sock, READ, connection.on_ready)
        door.heads.start(connection)
        connection.on_ready(READ)  # its head has mostly come as well: one turn of the poller is saved

    def _pause(self, listening: Socket) -> None:
        """A full process would be told of the same waiting connection for ever: look again a little later."""
        self._door.log.warning("accept-paused", for_s=_PAUSE_S)
        self._door.poller.change(listening, 0)
        self._paused = asyncio.get_running_loop().call_later(_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._paused = None
        if self._sock is not None:
            self._door.poller.change(self._sock, _ACCEPT)
