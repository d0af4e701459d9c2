"""The process of callers: opens leases through a proxy on a schedule of its own and sums up what each one saw.

Arrivals are open-loop (a slow proxy does not slow them down) unless ``together`` asks for a fixed number of
callers at once, each replaced when it ends. Prints one JSON line of figures.
"""

import json
import random
import resource
import sys
import time
from collections import Counter
from typing import Any

from farmctl.bench.fakes import heads
from farmctl.bench.fakes.epoll import Loop
from farmctl.bench.figures import Latency
from farmctl.bench.load.callers import Caller
from farmctl.bench.load.plans import Plan

SOURCES = 24  # source addresses: 28,000 ports each, so that TIME_WAIT never runs them dry
LINGER_S = 30.0  # how long callers that are still open may go on after the schedule's end


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


if __name__ == "__main__":
    print(json.dumps(Crowd(Plan.from_json(sys.stdin.read())).run()))
