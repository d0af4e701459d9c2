"""Log lines as evidence: leases by the agents' word, overlaps, and what is no evidence at all."""

import json

import pytest

from farmctl.scenarios import witnesses
from farmctl.scenarios.admin import Metrics
from farmctl.scenarios.results import Fate, Span


def log_line(event, at, **fields):
    return json.dumps({"event": event, "t": at, **fields})


def lines(*steps):
    return [log_line(event, at, lease=what, why=what) for event, at, what in steps]


BEGAN, ENDED = "lease-began", "lease-ended"


@pytest.mark.parametrize(
    ("steps", "overlapping"),
    [
        ([(BEGAN, 1, "A"), (ENDED, 2, "A"), (BEGAN, 2, "B"), (ENDED, 3, "B")], 0),
        ([(BEGAN, 1, "A"), (BEGAN, 1.5, "B"), (ENDED, 2, "A"), (ENDED, 3, "B")], 1),
        ([(BEGAN, 1, "A"), (BEGAN, 1.5, "B"), (ENDED, 1.6, "B"), (BEGAN, 1.7, "C"), (ENDED, 3, "A")], 2),
        ([(BEGAN, 1, "A"), (BEGAN, 5, "B"), (ENDED, 6, "B")], 1),  # A never ended: it still holds the pod
        ([(BEGAN, 1, "A"), ("chrome-started", 4, "start"), (BEGAN, 5, "B"), (ENDED, 6, "B")], 0),
        ([(BEGAN, 1, "A"), ("chrome-started", 4, "spare"), (BEGAN, 5, "B")], 1),  # a spare is no new agent
        ([], 0),
    ],
)
def test_two_leases_on_one_pod_are_seen(steps, overlapping):
    found = witnesses.tenures({"p1": lines(*steps)})
    assert len(witnesses.overlaps(found)) == overlapping


def test_leases_on_two_pods_at_one_time_are_no_overlap():
    logs = {"p1": lines((BEGAN, 1, "A"), (ENDED, 3, "A")), "p2": lines((BEGAN, 2, "B"), (ENDED, 4, "B"))}
    assert witnesses.overlaps(witnesses.tenures(logs)) == []


def test_what_is_not_a_json_event_is_no_evidence():
    rubbish = ["", "not json", "[1]", '{"event":"x"}', '{"t":1}', '{"event":"x","t":"soon"}']
    assert witnesses.records(rubbish) == []


def test_events_are_ordered_across_pods_and_name_theirs():
    logs = {"p1": [log_line("free", 3)], "p2": [log_line("free", 1), log_line("other", 2)]}
    assert [(told["pod"], told["t"]) for told in witnesses.events(logs, "free")] == [("p2", 1), ("p1", 3)]


def test_errors_of_the_proxy_itself():
    loud = [
        log_line("crash", level="error", at=1),
        log_line("set-aside", level="warning", at=1),
        "Traceback (most recent call)",
    ]
    assert len(witnesses.faults_of_ours(loud)) == 2


def test_metrics_sum_what_carries_the_labels():
    text = (
        "# TYPE farmproxy_dials_total counter\n"
        'farmproxy_dials_total{pool="a",result="refused"} 2.0\n'
        'farmproxy_dials_total{pool="b",result="refused"} 1\n'
        'farmproxy_dials_total{pool="a",result="leased"} 7\n'
        "farmproxy_watch_age_seconds 0.5\n"
    )
    metrics = Metrics.parsed(text)
    assert metrics.total("farmproxy_dials_total", result="refused") == 3
    assert metrics.total("farmproxy_dials_total", result="refused", pool="a") == 2
    assert metrics.total("farmproxy_watch_age_seconds") == 0.5
    assert metrics.total("nothing") == 0


def test_the_proxys_log_names_the_pods_that_a_caller_could_not_see():
    def ended(at, label, pod):
        return log_line("lease-ended", at, label=label, pod=pod, lease_s=1)

    log = [ended(9, "s/b", "p9"), ended(5, "s/a", "p2"), ended(3, "s/a", "p1"), ended(4, "s/c", "p4")]
    a = Fate("a", "playwright", "done", [], 2, [Span("session", 0), Span("backoff", 1), Span("session", 2)])
    b = Fate("b", "raw", "done", [], 1, [Span("waiting", 0), Span("session", 1, 2, "seen")])
    c = Fate("c", "raw", "done", [], 1, [Span("session", 0), Span("session", 1)])
    witnesses.name_pods([a, b, c], "s", log)
    assert [span.pod for span in a.spans] == ["p1", "", "p2"]
    assert [span.pod for span in b.spans] == ["", "seen"]
    assert [span.pod for span in c.spans] == ["", ""]  # two sessions and one lease: not sure which
