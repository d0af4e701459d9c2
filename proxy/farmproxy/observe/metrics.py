"""Every metric of the proxy, present with 0 from the start: an absent series would freeze the autoscaler.

Counts that belong to an event stand in dicts by their closed label; what the core knows is read at scrape time. The
registry is this object's own, so that two proxies in one process never mix.
"""

from collections.abc import Callable, Iterable, Iterator

from farmwire import metrics as names
from farmwire.reasons import DialResult, End, Refusal, WatchRestart
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from farmproxy import __version__
from farmproxy.core.pods import PodState
from farmproxy.core.snapshots import PoolCounts
from farmproxy.observe import logs
from farmproxy.observe.counters import Buckets, Count, counter_family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# 1 ms is a free pod at once; 3600 s is the default hold ceiling.
HOLD_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600)
# 3 ms is the target for a pod that turns free; beyond seconds a dial was re-queued.
GRANT_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
STALL_BUCKETS_S = (0.5, 1, 2, 5, 10, 30, 60)
LEASE_BUCKETS_S = (0.1, 0.3, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)

NOTHING = PoolCounts(demand=0, leases=0, held=0, pods=dict.fromkeys(map(str, PodState), 0))


class Metrics:
    """``leases_ended[End.DONE].inc()``, ``hold_seconds.observe(s)``; ``bytes_up`` and ``bytes_down`` are plain ints
    for the tunnels to add to.
    """

    def __init__(self, pools: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        self.bytes_up = 0
        self.bytes_down = 0
        self._pools = tuple(pools)
        self._counts: Callable[[str], PoolCounts] = lambda _pool: NOTHING
        self._watch_age_s: Callable[[], float] = lambda: 0.0
        self.leases_granted = Count()
        self.leases_ended = {end: Count() for end in End}
        self.refusals = {reason: Count() for reason in Refusal}
        self.dials = {result: Count() for result in DialResult}
        self.watch_restarts = {reason: Count() for reason in WatchRestart}
        self.endpoints_ignored = Count()
        self.loop_stall_seconds = Buckets(STALL_BUCKETS_S)
        self.hold_seconds = Buckets(HOLD_BUCKETS_S)
        self.grant_seconds = Buckets(GRANT_BUCKETS_S)
        self.lease_seconds = Buckets(LEASE_BUCKETS_S)
        build = Gauge(names.BUILD_INFO, "1, with the version.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self.registry.register(_FarmCollector(self))
        ProcessCollector(registry=self.registry)

    def read_from(self, counts: Callable[[str], PoolCounts], watch_age_s: Callable[[], float]) -> None:
        """Where the gauges come from: the core's counts of a pool, and the oldest watch's age."""
        self._counts = counts
        self._watch_age_s = watch_age_s

    def text(self) -> bytes:
        """The exposition of /metrics, as CONTENT_TYPE says."""
        return generate_latest(self.registry)

    def gauges(self) -> Iterator[Metric]:
        """What is read at scrape time."""
        demand = GaugeMetricFamily(names.DEMAND, "Held, dialling and leased callers.", labels=["pool"])
        leases = GaugeMetricFamily(names.LEASES, "Running leases.", labels=["pool"])
        held = GaugeMetricFamily(names.HELD, "Callers held.", labels=["pool"])
        pods = GaugeMetricFamily(names.PODS, "Known pods, by state.", labels=["pool", "state"])
        for pool in self._pools:
            counts = self._counts(pool)
            demand.add_metric([pool], counts.demand)
            leases.add_metric([pool], counts.leases)
            held.add_metric([pool], counts.held)
            for state in map(str, PodState):
                pods.add_metric([pool, state], counts.pods.get(state, 0))
        yield from (demand, leases, held, pods)
        yield GaugeMetricFamily(
            names.WATCH_AGE_SECONDS, "Since the API server last said anything.", value=self._watch_age_s()
        )
        tunnel = CounterMetricFamily(
            names.TUNNEL_BYTES, "Bytes relayed, up is to the pod.", labels=["direction"]
        )
        tunnel.add_metric(["up"], self.bytes_up)
        tunnel.add_metric(["down"], self.bytes_down)
        yield tunnel

    def counted(self) -> Iterator[Metric]:
        """What was counted event by event."""
        granted = CounterMetricFamily(names.LEASES_GRANTED, "Leases granted.")
        granted.add_metric([], self.leases_granted.value)
        yield granted
        yield counter_family(names.LEASES_ENDED, "Leases ended, by reason.", "reason", self.leases_ended)
        yield counter_family(names.REFUSALS, "Callers refused, by reason.", "reason", self.refusals)
        yield counter_family(names.DIALS, "Dials of pods, by result.", "result", self.dials)
        yield counter_family(
            names.WATCH_RESTARTS,
            "Watches of EndpointSlices started anew, by reason.",
            "reason",
            self.watch_restarts,
        )
        ignored = CounterMetricFamily(names.ENDPOINTS_IGNORED, "Endpoints that cannot be dialled.")
        ignored.add_metric([], self.endpoints_ignored.value)
        yield ignored
        dropped = CounterMetricFamily(names.LOG_LINES_DROPPED, "Log lines that a slow reader lost.")
        dropped.add_metric([], logs.dropped())
        yield dropped
        yield self.loop_stall_seconds.family(
            names.LOOP_STALL_SECONDS, "Times in which the whole process stood still."
        )
        yield self.hold_seconds.family(names.HOLD_SECONDS, "From arrival to session.")
        yield self.grant_seconds.family(names.GRANT_SECONDS, "From pod free and caller there to session.")
        yield self.lease_seconds.family(names.LEASE_SECONDS, "Length of leases.")


class _FarmCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.counted()
        yield from self._metrics.gauges()
