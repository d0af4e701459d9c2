"""Metrics: every name of the contract is there with 0 before anything happens."""

from farmproxy.core.pods import PodState
from farmproxy.core.snapshots import PoolCounts
from farmproxy.observe.metrics import Metrics
from farmwire import metrics as names
from farmwire.reasons import DialResult, End, Refusal, WatchRestart
from prometheus_client.parser import text_string_to_metric_families


def samples(metrics):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_every_series_is_zero_at_start():
    # no sample at all would freeze the autoscaler
    found = samples(Metrics(["default", "big"]))
    for pool in ("default", "big"):
        label = ("pool", pool)
        for name in (names.DEMAND, names.LEASES, names.HELD):
            assert found[name, (label,)] == 0
        for state in map(str, PodState):
            assert found[names.PODS, (label, ("state", state))] == 0
    for name, label, values in [
        (names.LEASES_ENDED, "reason", End),
        (names.REFUSALS, "reason", Refusal),
        (names.DIALS, "result", DialResult),
        (names.WATCH_RESTARTS, "reason", WatchRestart),
        (names.TUNNEL_BYTES, "direction", ("up", "down")),
    ]:
        assert {key: value for key, value in found.items() if key[0] == name} == {
            (name, ((label, str(value)),)): 0 for value in values
        }
    for name in (names.HOLD_SECONDS, names.GRANT_SECONDS, names.LEASE_SECONDS):
        assert found[f"{name}_count", ()] == 0
    assert found[names.LEASES_GRANTED, ()] == 0
    assert found[names.WATCH_AGE_SECONDS, ()] == 0
    assert [value for (name, _), value in found.items() if name == names.BUILD_INFO] == [1]


def test_gauges_are_read_when_scraped():
    metrics = Metrics(["default"])
    counts = PoolCounts(
        demand=5, leases=3, held=2, pods={**dict.fromkeys(map(str, PodState), 0), "leased": 3}
    )
    metrics.read_from({"default": counts}.__getitem__, lambda: 1.5)
    metrics.bytes_up += 10
    metrics.bytes_down += 20
    found = samples(metrics)
    assert found[names.DEMAND, (("pool", "default"),)] == 5
    assert found[names.PODS, (("pool", "default"), ("state", "leased"))] == 3
    assert found[names.TUNNEL_BYTES, (("direction", "up"),)] == 10
    assert found[names.TUNNEL_BYTES, (("direction", "down"),)] == 20
    assert found[names.WATCH_AGE_SECONDS, ()] == 1.5


def test_counters_are_kept_as_children():
    metrics = Metrics(["default"])
    metrics.leases_ended[End.POD_LOST].inc()
    metrics.refusals[Refusal.QUEUE_FULL].inc()
    metrics.dials[DialResult.LEASED].inc()
    metrics.grant_seconds.observe(0.0025)
    found = samples(metrics)
    assert found[names.LEASES_ENDED, (("reason", "pod-lost"),)] == 1
    assert found[f"{names.GRANT_SECONDS}_bucket", (("le", "0.003"),)] == 1
    assert found[f"{names.GRANT_SECONDS}_bucket", (("le", "0.002"),)] == 0


def test_no_label_but_the_closed_ones():
    labels = {key for _, pairs in samples(Metrics(["default"])) for key, _ in pairs}
    assert labels <= {"pool", "state", "reason", "result", "direction", "le", "version"}


def test_two_proxies_do_not_mix():
    one, other = Metrics(["default"]), Metrics(["default"])
    one.leases_granted.inc()
    assert samples(other)[names.LEASES_GRANTED, ()] == 0
