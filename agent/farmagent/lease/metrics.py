"""What the agent counts, under farmwire's names. No label holds an id, an address or a token."""

from collections.abc import Callable

from farmwire import metrics as names
from farmwire.reasons import End
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from farmagent.chrome.binaries import Binary
from farmagent.lease.states import State, Why
from farmagent.logs import log

RECYCLE_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _LogLines(Collector):
    def collect(self) -> list[CounterMetricFamily]:
        name = names.AGENT_LOG_LINES_DROPPED
        return [CounterMetricFamily(name, "Log lines that a slow reader lost", value=log.dropped)]


class AgentMetrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._state = Gauge(names.AGENT_STATE, "1 for the current state", ["state"], registry=self._registry)
        self._leases = Counter(names.AGENT_LEASES, "Leases ended", ["end"], registry=self._registry)
        self._starts = Counter(names.AGENT_CHROME_STARTS, "Chromes started", ["why"], registry=self._registry)
        self._recycle = Histogram(
            names.AGENT_RECYCLE_SECONDS,
            "From the end of a lease until free again",
            buckets=RECYCLE_BUCKETS,
            registry=self._registry,
        )
        self._isolated = Gauge(
            names.AGENT_ISOLATED,
            "1 where Chrome has a uid of its own (uid), and where its sandbox is on (sandbox)",
            ["what"],
            registry=self._registry,
        )
        self._registry.register(_LogLines())
        for end in End:
            self._leases.labels(end.value)
        for why in Why:
            self._starts.labels(why.value)
        self.state(State.STARTING)

    def state(self, current: State) -> None:
        for state in State:
            self._state.labels(state.value).set(1 if state is current else 0)

    def isolation(self, binary: Callable[[], Binary]) -> None:
        self._isolated.labels("uid").set_function(lambda: not binary().shared_uid)
        self._isolated.labels("sandbox").set_function(lambda: not binary().no_sandbox)

    def lease_ended(self, end: End) -> None:
        self._leases.labels(end.value).inc()

    def chrome_started(self, why: Why) -> None:
        self._starts.labels(why.value).inc()

    def recycled(self, recycle_s: float) -> None:
        self._recycle.observe(recycle_s)

    def page(self) -> bytes:
        return generate_latest(self._registry)
