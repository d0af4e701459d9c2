"""Each scenario's judgement, fed with evidence: the good one passes, and each way to break the claim fails.

``BROKEN`` lists, scenario by scenario, what is changed in the good evidence and which check must then fail.
"""

from dataclasses import replace

import pytest

from farmctl.scenarios import catalogue
from farmctl.scenarios.claims import (
    apiserver_outage,
    caller_leaves,
    cold_start,
    exclusive_lease,
    frozen_pod,
    half_dead_pod,
    hold_until_free,
    idle_browser_death,
    mid_job_kill,
    pod_never_ready,
    proxy_restart,
    rollout,
    scale_down_spares_busy,
    scale_from_queue,
    spot_reclaim,
    stale_endpoint,
)
from farmctl.scenarios.results import Fate
from farmctl.scenarios.witnesses import Tenure


def fate(name, outcome="done", errors=(), attempts=1):
    return Fate(name, "raw", outcome, errors, attempts, [])


def fates(count, prefix="c"):
    return [fate(f"{prefix}-{n}") for n in range(1, count + 1)]


STRUCK = fate("c-2", errors=["JobLost: x"], attempts=2)
LOST = fate("c-2", "lost", ["JobLost: x"])
LATE = fate("c-2", "unfinished")
APART = [Tenure("p1", "A", 1, 2, "done"), Tenure("p1", "B", 2, 3, "done")]
TOGETHER = [Tenure("p1", "A", 1, 2.5, "done"), Tenure("p1", "B", 2, 3, "done")]
TENURES = [Tenure("p1", str(n), n, n + 1, "done") for n in range(200)]
VICTIM = fate("page-06", errors=["JobLost: gone"], attempts=2)
KILL = [fate(f"page-{n:02}") for n in range(1, 21) if n != 6]
REFUSED_0 = ["Refused: refused: no-free-pod (503): x"]
REFUSED_2 = ["Refused: refused: hold-timeout (503): x"]
DRAINING = ["Refused: refused: draining (503)"]
DOOMED = [fate(f"doomed-{n}", errors=["JobLost: gone"], attempts=2) for n in (1, 2)]

GOOD = {
    stale_endpoint: stale_endpoint.Evidence("127.0.1.201:9222", fates(10), 3, 2, 3, 14.0),
    mid_job_kill: mid_job_kill.Evidence(
        "page-06", ["JobLost"], [VICTIM, *KILL], {"page-06": 2, **{f.caller: 1 for f in KILL}}, 8, 400
    ),
    hold_until_free: hold_until_free.Evidence("ab", "ab", fates(2), REFUSED_0, REFUSED_2, 2.01, [0.1, 0.2]),
    caller_leaves: caller_leaves.Evidence(
        0.1, [fate("gone", "left")], fates(5), 6, 6, 0, ["caller-leaves/c-1"], 0.1
    ),
    idle_browser_death: idle_browser_death.Evidence(
        fate("v", "lost", ["x"]), 0.3, "browser-died", fates(3), fates(4), 0
    ),
    frozen_pod: frozen_pod.Evidence(
        fates(4), 1, fate("v", "lost", ["x"]), 6.0, "browser-died", fates(1), fates(4)
    ),
    half_dead_pod: half_dead_pod.Evidence(fates(4), 2, fate("v", "lost", ["x"]), 31.0, fates(1), fates(4)),
    exclusive_lease: exclusive_lease.Evidence(TENURES, [], 200, [], 5),
    pod_never_ready: pod_never_ready.Evidence(
        fates(12), ["n1", "n2"], {"p1": 7, "p2": 5, "n1": 0}, ["unready", "unready"]
    ),
    apiserver_outage: apiserver_outage.Evidence(fate("s"), fates(8), fates(4), 2, 3.0),
    proxy_restart: proxy_restart.Evidence(
        fates(9),
        fate("late", errors=DRAINING, attempts=2),
        DRAINING,
        [fate(f"k{n}", errors=["JobLost"], attempts=2) for n in range(7)],
        APART,
    ),
    cold_start: cold_start.Evidence(fates(3), 3.0, 5.0),
    scale_from_queue: scale_from_queue.Evidence(fates(6), 6.0, 6, ["pod"] * 6, 9.0),
    scale_down_spares_busy: scale_down_spares_busy.Evidence(
        fates(4), fates(4, "n"), ["p3", "p4"], ["farm/p1/u1", "farm/p2/u2"], 2
    ),
    rollout: rollout.Evidence(fates(60), fate("through"), [], [], 4, 20, 5.0, 3, 3),
    spot_reclaim: spot_reclaim.Evidence(DOOMED, fates(6), 2, 31.0, 9.0, [], ["p9"]),
}

BROKEN = [
    (stale_endpoint, {"fates": [*fates(9), LOST]}, "callers that saw an error"),
    (stale_endpoint, {"fates": [*fates(9), LATE]}, "callers done"),
    (stale_endpoint, {"refused_dials": 40}, "dials at the dead address"),
    (stale_endpoint, {"most_dials_of_a_caller": 1}, "dials of the caller"),
    (stale_endpoint, {"faults": 0}, "faults"),
    (mid_job_kill, {"fates": [VICTIM, *KILL[1:], STRUCK]}, "blast radius"),
    (mid_job_kill, {"fates": [fate("page-06"), *KILL]}, "blast radius"),
    (mid_job_kill, {"fates": [fate("page-06"), *KILL[1:], STRUCK]}, "the caller that saw it"),
    (mid_job_kill, {"victim_error_kinds": ["Error"]}, "what it saw"),
    (mid_job_kill, {"fates": [fate("page-06", "lost", ["x"]), *KILL]}, "its retry succeeded"),
    (mid_job_kill, {"fates": [VICTIM, *KILL[1:], LATE]}, "others that finished"),
    (mid_job_kill, {"began": {"page-06": 2, "page-07": 2}}, "began more than once"),
    (mid_job_kill, {"began": {"page-06": 1}}, "began more than once"),
    (mid_job_kill, {"held_at_kill": 0}, "callers held"),
    (mid_job_kill, {"error_after_ms": None}, "milliseconds"),
    (hold_until_free, {"served": "ba"}, "order served"),
    (hold_until_free, {"served": "a"}, "order served"),
    (hold_until_free, {"fates": [fate("c-1"), STRUCK]}, "held callers that saw an error"),
    (hold_until_free, {"impatient": []}, "hold=0"),
    (hold_until_free, {"impatient": REFUSED_2}, "hold=0"),
    (hold_until_free, {"timed_out": REFUSED_0}, "hold=2"),
    (hold_until_free, {"timed_out_after_s": 20.0}, "at the most"),
    (hold_until_free, {"timed_out_after_s": 0.1}, "at the least"),
    (hold_until_free, {"turned_free_to_lease_s": []}, "from a pod's free"),
    (hold_until_free, {"turned_free_to_lease_s": [9.0]}, "from a pod's free"),
    (caller_leaves, {"places_freed_s": 3.0}, "places were free"),
    (caller_leaves, {"leases_granted": 7}, "leases granted"),
    (caller_leaves, {"abandoned_dials": 1}, "abandoned"),
    (caller_leaves, {"labels_leased": ["caller-leaves/gone"]}, "callers that had left"),
    (caller_leaves, {"others": [*fates(4), LATE]}, "stayed"),
    (caller_leaves, {"reset_session_freed_s": 8.0}, "reset session"),
    (idle_browser_death, {"victim": fate("v")}, "silent caller's end"),
    (idle_browser_death, {"noticed_s": float("inf")}, "until it knew"),
    (idle_browser_death, {"end": "done"}, "end of its lease"),
    (idle_browser_death, {"others": [*fates(2), LOST]}, "others whose browser"),
    (idle_browser_death, {"afterwards": [*fates(3), LOST]}, "served after"),
    (idle_browser_death, {"restarts": 1}, "restarted"),
    (frozen_pod, {"timeouts": 0}, "did not answer"),
    (frozen_pod, {"newcomers": [*fates(3), STRUCK]}, "came meanwhile"),
    (frozen_pod, {"newcomers": [*fates(3), LATE]}, "came meanwhile"),
    (frozen_pod, {"victim": fate("v")}, "whose Chrome froze"),
    (frozen_pod, {"noticed_s": float("inf")}, "until it knew"),
    (frozen_pod, {"end": "caller-lost"}, "end of its lease"),
    (frozen_pod, {"others": [LOST]}, "others"),
    (frozen_pod, {"last": [*fates(3), STRUCK]}, "after the thaw"),
    (half_dead_pod, {"timeouts": 0}, "cut off"),
    (half_dead_pod, {"newcomers": [*fates(3), STRUCK]}, "came meanwhile"),
    (half_dead_pod, {"victim": fate("v")}, "on the lost pod"),
    (half_dead_pod, {"noticed_s": 95.0}, "until it knew"),
    (half_dead_pod, {"others": [LATE]}, "others"),
    (half_dead_pod, {"last": [*fates(3), LOST]}, "afterwards"),
    (exclusive_lease, {"tenures": [*TENURES, Tenure("p1", "X", 5.5, 6.5, "done")]}, "by the agents"),
    (exclusive_lease, {"seen_by_callers": TOGETHER}, "by what callers saw"),
    (exclusive_lease, {"done": 199}, "callers done"),
    (exclusive_lease, {"struck": ["c"]}, "saw an error"),
    (exclusive_lease, {"tenures": TENURES[1:]}, "leases the agents wrote down"),
    (pod_never_ready, {"leases_by_pod": {"p1": 11, "n1": 1}}, "never ready"),
    (pod_never_ready, {"fates": [*fates(11), LATE]}, "callers done"),
    (pod_never_ready, {"states": ["unready", "free"]}, "their state"),
    (apiserver_outage, {"during": [*fates(7), STRUCK]}, "served during"),
    (apiserver_outage, {"sitting": LOST}, "undisturbed"),
    (apiserver_outage, {"watch_restarts": 0}, "watch restarts"),
    (apiserver_outage, {"caught_up_s": 70.0}, "catch up"),
    (apiserver_outage, {"after": [LATE]}, "served afterwards"),
    (proxy_restart, {"drained": [*fates(8), STRUCK]}, "SIGTERM: leased and held"),
    (proxy_restart, {"late_errors": []}, "`draining`"),
    (proxy_restart, {"late": LOST}, "that caller's retry"),
    (proxy_restart, {"killed": [LOST]}, "their retries"),
    (proxy_restart, {"killed": fates(7)}, "that saw it"),
    (proxy_restart, {"tenures": TOGETHER}, "two leases"),
    (cold_start, {"demand": 0.0}, "demand"),
    (cold_start, {"fates": [*fates(2), STRUCK]}, "first try"),
    (cold_start, {"fates": [*fates(2), LATE]}, "callers done"),
    (scale_from_queue, {"demand": 5.0}, "demand"),
    (scale_from_queue, {"pods": 5}, "every caller has one"),
    (scale_from_queue, {"most_pods": ["pod"] * 8}, "overshoot"),
    (scale_from_queue, {"fates": [*fates(5), STRUCK]}, "saw an error"),
    (scale_down_spares_busy, {"sitting": [*fates(3), LOST]}, "ran to their end"),
    (scale_down_spares_busy, {"newcomers": [LATE]}, "newcomers served"),
    (scale_down_spares_busy, {"newcomers_on": ["farm/p3/u3"]}, "told to go"),
    (scale_down_spares_busy, {"pods_left": 4}, "pods left"),
    (rollout, {"fates": [*fates(59), STRUCK]}, "saw an error"),
    (rollout, {"fates": [*fates(59), LATE]}, "callers done"),
    (rollout, {"through": LOST}, "undisturbed"),
    (rollout, {"broken": ["c-1: drained"]}, "did not end"),
    (rollout, {"old_left": ["p1"]}, "old pods"),
    (rollout, {"pods": 3}, "pods at the end"),
    (rollout, {"grants": 3}, "grants"),
    (rollout, {"longest_without_grant_s": 16.0}, "without a grant"),
    (rollout, {"busy_told_to_go": 0}, "while leased"),
    (rollout, {"least_taking": 1}, "took callers"),
    (spot_reclaim, {"doomed": [], "cut_off": 0}, "could not end"),
    (spot_reclaim, {"doomed": [DOOMED[0], fate("doomed-2")]}, "saw an error"),
    (spot_reclaim, {"others": [*fates(5), STRUCK]}, "saw an error"),
    (spot_reclaim, {"doomed": [DOOMED[0], fate("doomed-2", "lost", ["JobLost: x"])]}, "retry"),
    (spot_reclaim, {"others": [*fates(5), LATE]}, "all others"),
    (spot_reclaim, {"cut_off": 3}, "cut off"),
    (spot_reclaim, {"noticed_s": 46.0}, "to the last error"),
    (spot_reclaim, {"healed_s": 61.0}, "whole pool elsewhere"),
    (spot_reclaim, {"lost_left": ["p1"]}, "left at the end"),
    (spot_reclaim, {"taken_back": []}, "came back"),
]


@pytest.mark.parametrize("module", GOOD, ids=lambda module: module.SCENARIO.name)
def test_good_evidence_passes_every_check(module):
    checks = module.judge(GOOD[module])
    assert checks
    assert [check.name for check in checks if not check.passed] == []


@pytest.mark.parametrize(
    ("module", "change", "failing"),
    BROKEN,
    ids=lambda value: getattr(getattr(value, "SCENARIO", None), "name", None),
)
def test_evidence_that_breaks_the_claim_fails(module, change, failing):
    checks = module.judge(replace(GOOD[module], **change))
    assert any(failing in check.name and not check.passed for check in checks), checks


def test_every_scenario_of_the_catalogue_is_judged_here_and_says_what_it_claims():
    found = catalogue.find_all()
    assert {scenario.name for scenario in found} == {module.SCENARIO.name for module in GOOD}
    assert [scenario.name for scenario in found] == list(catalogue.NAMES)
    assert all(scenario.claim.endswith(".") for scenario in found)
