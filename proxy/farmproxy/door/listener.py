"""The door's listening sockets: take connections in bounded batches, refuse them before descriptors run out.

A door on loopback answers on 127.0.0.1 and ::1 alike: where a caller's ``localhost`` leads is its system's choice.
"""

import asyncio
import contextlib
import errno
from functools import partial

from farmwire.reasons import Refusal

from farmproxy.config.parsers import HostPort
from farmproxy.door import responses
from farmproxy.door.connections import Connection
from farmproxy.door.context import Door
from farmproxy.door.leases_api import LeasesApi
from farmproxy.net.poller import READ
from farmproxy.net.sockets import EXHAUSTED_ERRNOS, Socket, accept, listen

_BATCH = 16  # accepts, each with its head, before others get their turn: pods that turned free above all
_FEW = 4  # while callers are held: a newcomer has to wait anyway, here or in the kernel
_PAUSE_S = 0.1  # after an accept that failed for want of descriptors or memory
_TWINS = {"127.0.0.1": "::1", "localhost": "::1", "::1": "127.0.0.1"}
_ACCEPT = READ & ~0x2000  # EPOLLIN alone: a listening socket has no peer to hang up


class Listener:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._api = LeasesApi(door)
        self._listening: list[Socket] = []
        self._paused: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        return bool(self._listening)

    def start(self, address: HostPort, *, keepalive_s: float) -> HostPort:
        """Listen; gives the address bound (port 0 asks the system for one). OSError when it is taken."""
        host, port = self._listen(address, keepalive_s)
        bound = HostPort(host, port)
        self._door.local = str(bound)
        twin = HostPort(_TWINS.get(address.host, ""), port)
        if twin.host:
            try:
                self._listen(twin, keepalive_s)
            except OSError as error:  # no IPv6 here, or another program has that one
                self._door.log.warning(
                    "door-on-one-loopback", address=str(bound), lacks=str(twin), detail=str(error)
                )
        return bound

    def stop(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
        while self._listening:
            self._door.poller.close(self._listening.pop())

    def _listen(self, address: HostPort, keepalive_s: float) -> tuple[str, int]:
        sock = listen(address.host, address.port, keepalive_s=keepalive_s)
        self._listening.append(sock)
        self._door.poller.watch(sock, _ACCEPT, partial(self._on_ready, sock, sock.family))
        host, port = sock.getsockname()[:2]
        return host, port

    def _on_ready(self, listening: Socket, family: int, _mask: int) -> None:
        if not self._listening:
            return
        for _ in range(_FEW if self._door.driver.waiting > 0 else _BATCH):
            try:
                sock, peer = accept(listening, family)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED_ERRNOS:
                    self._pause()
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
                sock.recv(65536)  # its head, most likely: unread, it would make the close an RST
            with contextlib.suppress(OSError):
                sock.send(responses.refusal(Refusal.DESCRIPTORS, "the proxy has no descriptor left"))
            sock.close()
            return
        connection = Connection(door, self._api, sock, peer)
        door.poller.watch(sock, READ, connection.on_ready)
        door.heads.start(connection)
        connection.on_ready(READ)  # its head has mostly come as well: one turn of the poller is saved

    def _pause(self) -> None:
        """A full process would be told of the same waiting connection for ever: look again a little later."""
        self._door.log.warning("accept-paused", for_s=_PAUSE_S)
        for sock in self._listening:
            self._door.poller.change(sock, 0)
        self._paused = asyncio.get_running_loop().call_later(_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._paused = None
        for sock in self._listening:
            self._door.poller.change(sock, _ACCEPT)
