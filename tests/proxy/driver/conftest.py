"""The driver alone, under virtual time: the real core and book, and sockets that a test moves by hand."""

import asyncio
from types import SimpleNamespace

import pytest
import structlog
from farmproxy import driver as driver_module
from farmproxy.core.events import AgentSaid, PodsChanged, PodSeen
from farmproxy.core.farm import Farm
from farmproxy.core.limits import Limits
from farmproxy.driver import Driver
from farmproxy.net.wakeups import Wakeup
from farmproxy.observe.metrics import Metrics
from farmproxy.registry.leases import Kind, Lease, LeaseBook
from farmwire.reasons import End


class LeaseRequest:
    """A caller that writes down what it is told. ``takes`` False: its pod's connection turns out to be broken."""

    def __init__(self, farm, lease, takes=True):
        self.lease = lease
        self.told = []
        self.idle = False
        self.takes = takes
        self._farm = farm

    def take(self, pod):
        self.told.append(("take", pod.address, pod.port))
        if isinstance(self.takes, Exception):
            raise self.takes
        return self.takes

    def begin(self):
        self.told.append("begin")

    def refuse(self, reason, detail):
        self.told.append(("refuse", str(reason), detail))

    def pass_on(self, status, body):
        self.told.append(("pass on", status, body))

    def close(self, end):
        self.told.append(("close", str(end)))
        self._farm.driver.session_ended(self, end)


class Dialling:
    """Stands for dials.Dialling: a test says how it ends."""

    exhausted = False

    def __init__(self, desk, address, port, request, reader, done):
        self.desk, self.address, self.port = desk, address, port
        self.request, self.reader, self._done = request, reader, done
        self.sock = object()
        self.started = self.abandoned = False

    def start(self):
        if Dialling.exhausted:
            raise driver_module.OutOfDescriptors
        self.started = True

    def abandon(self):
        self.abandoned = True

    def ends(self, outcome):
        self._done(self, outcome)

    @property
    def fields(self):
        lines = self.request.decode().split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in lines if line)


class ReadinessPolls:
    def __init__(self):
        self.asked = []
        self.stopped = []

    def ask(self, command):
        self.asked.append(command)
        if command.lease is not None:
            self.lease_log.asked(command.lease)

    def stop(self, command):
        self.stopped.append(command)
        self.lease_log.heard(self.asked[-1].lease, None, reached=True)


class Lines:
    def __init__(self):
        self.lines = []

    def __call__(self, _logger, level, event):
        self.lines.append({**event, "level": level})
        raise structlog.DropEvent

    def of(self, event):
        return [line for line in self.lines if line["event"] == event]


class DrivenFarm:
    def __init__(self, limits):
        loop = asyncio.get_running_loop()
        self.loop, self.clock = loop, loop.time
        self.began = loop.time()
        self.core = Farm({"p": limits})
        self.closed = []
        self.desk = SimpleNamespace(poller=SimpleNamespace(close=self.closed.append))
        self.readiness_polls = ReadinessPolls()
        self.book = LeaseBook(self.clock)
        self.metrics = Metrics(["p"])
        self.log = Lines()
        self.driver = Driver(
            self.core,
            dials=self.desk,
            readiness_polls=self.readiness_polls,
            book=self.book,
            metrics=self.metrics,
            log=structlog.wrap_logger(structlog.PrintLogger(), processors=[self.log]),
            clock=self.clock,
            agent_key=lambda: "agents-key",
        )
        self.driver.start(Wakeup(loop, self.driver.wake))

    def seen(self, *keys, **flags):
        flags = {"ready": True, "terminating": False, **flags}
        pods = [PodSeen(key, f"pod-{key}", "10.0.0.9", 9222, **flags) for key in keys]
        self.driver.tell(PodsChanged("p", tuple(pods)))

    def said(self, key, free):
        self.driver.tell(AgentSaid("p", key, free))

    def arrive(self, id_, *, kind=Kind.SOCKET, hold_s=300.0, max_s=900.0, cost=0, takes=True):
        lease = Lease(id_, kind, owner="me", pool="p", label=f"label-{id_}", max_s=max_s, now=self.clock())
        lease.public_base = "http://farm.test"
        caller = LeaseRequest(self, lease, takes)
        self.driver.arrive(caller, hold_s, cost)
        return caller

    def dial(self, id_):
        return self.driver.dialling[id_]

    def leased(self, id_, **how):
        caller = self.arrive(id_, **how)
        self.dial(id_).ends(driver_module.Leased())
        assert caller.told[-1] == "begin"
        return caller

    def count(self, result):
        return self.metrics.dials[result].value

    def passed_s(self):
        return self.loop.time() - self.began

    def end_of(self, caller):
        (line,) = [line for line in self.log.of("lease-ended") if line["lease"] == caller.lease.id]
        return End(line["end"])


@pytest.fixture
def drive(monkeypatch):
    """Call it in the test's loop: a farm of no pods."""
    monkeypatch.setattr(driver_module, "Dialling", Dialling)
    monkeypatch.setattr(Dialling, "exhausted", False)
    return lambda limits=Limits(): DrivenFarm(limits)  # noqa: B008  # frozen


@pytest.fixture
def no_descriptors(monkeypatch):
    monkeypatch.setattr(Dialling, "exhausted", True)
