"""One caller of a benchmark: connect, ask, first byte, session, close; every moment told to its crowd."""

import socket
import time
from typing import Protocol

from farmctl.bench.fakes import heads
from farmctl.bench.fakes.epoll import BROKEN, READ, WRITE, Loop
from farmctl.bench.load.plans import Plan

IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h: choose the port at connect, per destination
DISCARD = 1 << 20
_SINK = bytearray(DISCARD)


class Crowd(Protocol):
    """What a caller needs of the crowd it belongs to."""

    plan: Plan
    loop: Loop
    expected: str  # the status of the answer
    message: bytes
    trips: list[int]  # nanoseconds of each round trip
    streamed: int

    def next_source(self) -> str: ...
    def session_s(self) -> float: ...
    def request(self) -> bytes: ...
    def first_byte(self, caller: "Caller", head: bytes, lowered: bytes) -> None: ...
    def finished(self, caller: "Caller") -> None: ...
    def ended(self, error: str) -> None: ...


class Caller:
    """One caller: connect, ask, first byte, session, close."""

    __slots__ = ("_crowd", "_got", "_need", "_sent", "_sock", "_stage", "_trips", "began_at", "due_at")

    def __init__(self, crowd: Crowd, due_at: float) -> None:
        self._crowd = crowd
        self._stage = "connecting"
        self._got = b""
        self._need = 0
        self._trips = 0
        self.due_at = due_at
        self.began_at = time.monotonic_ns()
        self._sent = 0
        sock = self._sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((crowd.next_source(), 0))
        sock.connect_ex(crowd.plan.door)
        crowd.loop.watch(sock.fileno(), self._on_ready, WRITE)

    def _on_ready(self, mask: int) -> None:
        try:
            if self._stage == "connecting":
                self._connected()
            elif mask & (READ | BROKEN):
                self._read()
        except BlockingIOError:
            return
        except OSError as error:
            self.end(f"{self._stage}: {type(error).__name__}")

    def _connected(self) -> None:
        if error := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, "connect")
        if self._crowd.plan.step == "connect":
            self.end("")
            return
        self._crowd.loop.change(self._sock.fileno(), READ)
        self._stage = "waiting"
        request = self._crowd.request()
        if self._sock.send(request) < len(request):
            raise OSError("the request did not fit into the socket")

    def _read(self) -> None:
        if self._stage == "stream":
            self._discard()
            return
        data = self._sock.recv(65536)
        if not data:
            self.end(f"{self._stage}: closed")
            return
        if self._stage == "waiting":
            self._read_head(self._got + data)
        elif self._stage == "body":
            self._need -= len(data)
            if self._need <= 0:
                self._crowd.finished(self)
                self.end("")
        elif self._stage == "trip":
            self._need -= len(data)
            if self._need <= 0:
                self._crowd.trips.append(time.monotonic_ns() - self._sent)
                self._next_trip()

    def _discard(self) -> None:
        """Take a stream's bytes without copying them (tcp(7), MSG_TRUNC): the proxy is what is measured."""
        count = self._sock.recv_into(_SINK, DISCARD, socket.MSG_TRUNC)
        self._crowd.streamed += count
        self._need -= count
        if self._need <= 0 or not count:
            self.end("" if self._need == 0 else f"a stream was off by {self._need} bytes")

    def _read_head(self, data: bytes) -> None:
        end = data.find(heads.END)
        if end < 0:
            self._got = data
            return
        head = data[: end + 2]
        status = head[9:12].decode()
        if status != self._crowd.expected:
            self.end(f"status {status}")
            return
        lowered = head.lower()
        self._crowd.first_byte(self, head, lowered)
        if self._crowd.plan.step == "stream":
            self._stage = "stream"
            self._need = int(self._crowd.plan.wishes["stream"]) - (len(data) - end - 4)
        elif status == "101":
            self._next_trip()
        else:
            self._stage = "body"
            self._need = int(heads.header(head, lowered, b"content-length") or 0) - (len(data) - end - 4)
            if self._need <= 0:
                self._crowd.finished(self)
                self.end("")

    def _next_trip(self) -> None:
        plan = self._crowd.plan
        if self._trips == plan.trips:
            self._stage = "session"
            if not plan.session_ms:
                self._hang_up()
            else:
                self._crowd.loop.after(self._crowd.session_s(), self._hang_up)
            return
        self._trips += 1
        self._stage = "trip"
        self._need = plan.body
        self._sent = time.monotonic_ns()
        self._sock.send(self._crowd.message)

    def _hang_up(self) -> None:
        if self._sock.fileno() >= 0:
            self._crowd.finished(self)
            self.end("")

    def end(self, error: str) -> None:
        self._crowd.loop.forget(self._sock)
        self._crowd.ended(error)
