"""Dialling: connect to a pod, ask for the lease, read the answer. Ends in exactly one call of ``done``, unless it was
abandoned. Limits: connect, first answer and between answers (handshake), the 101 (prepare, looked at with each answer).
"""

import errno
import socket
from collections.abc import Callable

from farmwire.reasons import DialResult

from farmproxy.config.settings import Settings
from farmproxy.net.poller import GONE, READ, WRITE, Poller
from farmproxy.net.sockets import EXHAUSTED_ERRNOS, Socket, outgoing
from farmproxy.net.timeouts import Timeouts
from farmproxy.upstream.handshakes import AnswerReader, Failed, Leased, Preparing

Done = Callable[["Dialling", Leased | Failed], None]


class OutOfDescriptors(Exception):  # the door's answer is "descriptors"
    """No descriptor or local port is left; no pod is at fault."""


class DialDesk:
    """What all dials share: the poller, the settings and the timers."""

    __slots__ = ("answer", "clock", "connect", "poller", "prepare_s")

    def __init__(self, poller: Poller, settings: Settings, clock: Callable[[], float]) -> None:
        self.poller = poller
        self.clock = clock
        self.prepare_s = settings.prepare_timeout_s
        self.connect: Timeouts[Dialling] = Timeouts(settings.connect_timeout_s, clock)
        self.answer: Timeouts[Dialling] = Timeouts(settings.handshake_timeout_s, clock)

    def sweep(self) -> None:
        """End the dials whose time is up."""
        for timeouts in (self.connect, self.answer):
            for dialling in timeouts.expired():
                dialling.time_is_up()


class Dialling:
    """One dial under way. After Leased the socket belongs to whom ``done`` tells, its events too."""

    __slots__ = ("_desk", "_done", "_prepare_by", "_reader", "_request", "address", "port", "sock")

    def __init__(
        self, desk: DialDesk, address: str, port: int, request: bytes, reader: AnswerReader, done: Done
    ) -> None:
        self._desk = desk
        self._request = request
        self._reader = reader
        self._done = done
        self._prepare_by = 0.0
        self.address = address
        self.port = port
        self.sock: Socket

    def start(self) -> None:
        """Connect; raise OutOfDescriptors when that cannot even be tried."""
        desk = self._desk
        try:
            sock = outgoing(self.address)
        except OSError as error:
            raise OutOfDescriptors from error
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # keepalive is for whom it is leased to
        code = sock.connect_ex((self.address, self.port))
        if code in EXHAUSTED_ERRNOS:
            sock.close()
            raise OutOfDescriptors
        if code == errno.EINPROGRESS and self._asked_at_once():
            self._await_answer()
            desk.poller.watch(sock, READ, self._on_answer)
            return
        # An error is reported by the poller too (EPOLLERR), so that ``done`` is never called from here.
        desk.connect.start(self)
        desk.poller.watch(sock, WRITE, self._on_connected)

    def abandon(self) -> None:
        """Drop the connection; ``done`` is not called."""
        self._stop_timers()
        self._desk.poller.close(self.sock)

    def time_is_up(self) -> None:
        self._fail(Failed(DialResult.TIMEOUT))

    def give_up(self) -> None:
        """A fault of ours."""
        self._fail(Failed(DialResult.BROKEN))

    def _asked_at_once(self) -> bool:
        """To a pod on this machine the connection already stands, and one turn of the poller is saved."""
        try:
            return self.sock.send(self._request) > 0  # a new socket's buffer takes a whole head
        except OSError:
            return False

    def _await_answer(self) -> None:
        desk = self._desk
        desk.answer.start(self)
        self._prepare_by = desk.clock() + desk.prepare_s

    def _on_connected(self, _mask: int) -> None:
        desk = self._desk
        try:
            sent = self.sock.send(self._request)
        except OSError:
            self._fail(Failed(DialResult.REFUSED))
            return
        if sent < len(
            self._request
        ):  # a new socket's buffer takes a head; else something is very wrong there
            self._fail(Failed(DialResult.BROKEN))
            return
        desk.connect.stop(self)
        self._await_answer()
        desk.poller.change(self.sock, READ)
        desk.poller.hand_over(self.sock, self._on_answer)

    def _on_answer(self, mask: int) -> None:
        try:
            data = self.sock.recv(16384)
        except BlockingIOError:
            return
        except OSError:
            self._fail(self._reader.closed())
            return
        if not data:
            self._fail(self._reader.closed())
            return
        outcome, prepares = self._reader.feed(data), False
        while isinstance(outcome, Preparing):
            prepares = True
            outcome = self._reader.next()
        if outcome is None and prepares:
            self._desk.answer.start(self)
            if self._desk.clock() > self._prepare_by:  # and no 101 is behind it
                outcome = Failed(DialResult.TIMEOUT)
        if outcome is None:
            return
        if isinstance(outcome, Leased) and mask & GONE:
            outcome = Failed(DialResult.BROKEN)  # closed with its 101: no caller byte may go there
        if isinstance(outcome, Failed):
            self._fail(outcome)
            return
        self._desk.answer.stop(self)
        self._done(self, outcome)

    def _fail(self, outcome: Failed) -> None:
        self.abandon()
        self._done(self, outcome)

    def _stop_timers(self) -> None:
        self._desk.connect.stop(self)
        self._desk.answer.stop(self)
