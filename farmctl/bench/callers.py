"""The process of callers: opens leases through a proxy on a schedule of its own and times each one.

Arrivals are open-loop (a slow proxy does not slow them down) unless ``together`` asks for a fixed number of
callers at once, each replaced when it ends. Prints one JSON line of figures.
"""

import json
import random
import resource
import socket
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from farmctl.bench import heads
from farmctl.bench.epoll import BROKEN, READ, WRITE, Loop
from farmctl.bench.figures import Latency

IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h: choose the port at connect, per destination
SOURCES = 24  # source addresses: 28,000 ports each, so that TIME_WAIT never runs them dry
DISCARD = 1 << 20
_SINK = bytearray(DISCARD)
LINGER_S = 30.0  # how long callers that are still open may go on after the schedule's end


@dataclass(slots=True)
class Plan:
    """What to do. ``step`` is how far a caller goes: connect, version, refused, lease,
    render or stream.
    """

    door: tuple[str, int]
    step: str = "lease"
    seconds: float = 5.0
    rate: float = 100.0  # arrivals a second, when ``together`` is 0
    together: int = 0
    even: bool = False  # arrivals at equal distances in place of Poisson's
    body: int = 0  # bytes of the caller's own: the POST's body, or the message to be echoed
    trips: int = 0  # round trips of ``body`` bytes on an upgraded connection
    session_ms: float = 0.0  # how long the session lasts; its spread is uniform by +-``vary``
    vary: float = 0.0
    wishes: dict[str, float] = field(default_factory=dict)  # for the fake pod, see heads.WORK
    warm_s: float = 0.0  # the first seconds are not counted
    seed: int = 1


class Caller:
    """One caller: connect, ask, first byte, session, close."""

    __slots__ = ("_crowd", "_got", "_need", "_sent", "_sock", "_stage", "_trips", "began_at", "due_at")

    def __init__(self, crowd: "Crowd", due_at: float) -> None:
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


class Crowd:
    """All callers of one plan, and their figures."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = Loop()
        self.expected = {"version": "200", "refused": "404", "render": "200"}.get(plan.step, "101")
        self.message = b"m" * plan.body
        self.streamed = 0
        self.trips: list[int] = []
        self._first: list[int] = []
        self._grant: list[int] = []
        self._hold: list[int] = []
        self._total: list[int] = []
        self._lag: list[int] = []
        self._errors: Counter[str] = Counter()
        self._random = random.Random(plan.seed)
        self._source = self._random.randrange(SOURCES)
        self._open = self._most = self._begun = self._done = 0
        self._closing = False
        self._start = time.monotonic() + 0.05
        self._next = self._start

    def next_source(self) -> str:
        self._source = (self._source + 1) % SOURCES
        return f"127.9.0.{self._source + 1}"

    def session_s(self) -> float:
        plan = self.plan
        return plan.session_ms * (1 + plan.vary * self._random.uniform(-1, 1)) / 1e3

    def request(self) -> bytes:
        """Build one caller's request; the pod's wishes carry a length of session where the pod keeps it."""
        plan, host = self.plan, f"{self.plan.door[0]}:{self.plan.door[1]}".encode()
        if plan.step == "version":
            return b"GET /json/version HTTP/1.1\r\nHost: %b\r\n\r\n" % host
        if plan.step == "render":
            wishes = heads.work({**plan.wishes, "session_ms": round(self.session_s() * 1e3, 1)})
            return (
                b"POST /render HTTP/1.1\r\nHost: %b\r\nX-Bench: %b\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (host, wishes, plan.body, self.message)
            )
        nowhere = b"?pool=nowhere" if plan.step == "refused" else b""
        return (
            b"GET /devtools/browser/farm%b HTTP/1.1\r\nHost: %b\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\nX-Bench: %b\r\n\r\n"
            % (nowhere, host, heads.WS_KEY, heads.work(plan.wishes))
        )

    # --- arrivals

    def run(self) -> dict[str, Any]:
        """Run the plan to its end and return the figures."""
        for _ in range(self.plan.together):
            self.loop.at(self._start, self._arrive)
        if not self.plan.together:
            self.loop.at(self._start, self._arrivals)
        self.loop.at(self._start + self.plan.seconds, self._close)
        self.loop.run()
        return self._figures()

    def _arrivals(self) -> None:
        while self._next <= time.monotonic():
            if self._closing or self._next >= self._start + self.plan.seconds:
                return
            self._arrive(self._next)
            mean_s = 1 / self.plan.rate
            self._next += mean_s if self.plan.even else self._random.expovariate(1 / mean_s)
        self.loop.at(self._next, self._arrivals)

    def _arrive(self, due_at: float = 0.0) -> None:
        if self._closing:
            return
        now = time.monotonic()
        self._begun += 1
        self._open += 1
        self._most = max(self._most, self._open)
        self._lag.append(int((now - (due_at or now)) * 1e9))
        Caller(self, due_at or now)

    def ended(self, error: str) -> None:
        self._open -= 1
        self._done += not error
        if error:
            self._errors[error] += 1
        if self.plan.together and not self._closing:
            # A refused caller comes back a little later, or a refusing proxy would be stormed.
            self.loop.after(0.01 if error else 0.0, self._arrive)
        if self._closing and not self._open:
            self.loop.stop()

    def _close(self) -> None:
        self._closing = True
        self.loop.after(LINGER_S, self.loop.stop)
        if not self._open:
            self.loop.stop()

    # --- figures

    def _counts(self, caller: Caller) -> bool:
        return caller.due_at >= self._start + self.plan.warm_s

    def first_byte(self, caller: Caller, head: bytes, lowered: bytes) -> None:
        now = time.monotonic_ns()
        if not self._counts(caller):
            return
        self._first.append(now - caller.began_at)
        free_at = int(heads.header(head, lowered, b"x-free-at") or 0)
        session_at = int(heads.header(head, lowered, b"x-session-at") or 0)
        if session_at:
            came_at = caller.began_at
            self._hold.append(session_at - came_at)
            ready_at = max(free_at, came_at)
            # A socket's first byte comes at once; a render's only after its work, so its session start counts.
            self._grant.append((now if self.expected == "101" else session_at) - ready_at)

    def finished(self, caller: Caller) -> None:
        if self._counts(caller):
            self._total.append(time.monotonic_ns() - caller.began_at)

    def _figures(self) -> dict[str, Any]:
        use = resource.getrusage(resource.RUSAGE_SELF)
        wall_s = time.monotonic() - self._start
        return {
            "begun": self._begun,
            "done": self._done,
            "left_open": self._open,
            "errors": dict(self._errors),
            "most_open": self._most,
            "streamed": self.streamed,
            "wall_s": wall_s,
            "cpu_s": use.ru_utime + use.ru_stime,
            **{
                name: Latency.of_ns(samples).as_dict()
                for name, samples in (
                    ("first_byte_ms", self._first),
                    ("hold_ms", self._hold),
                    ("grant_ms", self._grant),
                    ("total_ms", self._total),
                    ("trip_ms", self.trips),
                    ("lag_ms", self._lag),
                )
            },
        }


def main() -> None:
    """Read a plan from stdin, run it, print the figures."""
    words = json.loads(sys.stdin.read())
    words["door"] = tuple(words["door"])
    print(json.dumps(Crowd(Plan(**words)).run()))


def plan_json(plan: Plan) -> str:
    return json.dumps(asdict(plan))


if __name__ == "__main__":
    main()
