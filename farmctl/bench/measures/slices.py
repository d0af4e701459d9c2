"""What EndpointSlices cost the real proxy: the list of a huge Service, one event, one choice of a pod.

Measured end to end, on the process: from the list request to an open door, and its CPU and memory.
"""

import json
import statistics
import time
from dataclasses import replace

from farmctl.bench.load.plans import Plan
from farmctl.bench.load.processes import DIRECT, FakeFarm, call, http_ok, wait_for
from farmctl.bench.load.proxies_under_test import Contender, farm_proxy
from farmctl.bench.results import Section, Verdict
from farmctl.bench.stage import Stage, about
from farmctl.errors import StageError

SMALL, LARGE, HUGE = 50, 8_000, 120_000
FOLD_S, FOLD_MIB, EVENT_MS = 3.0, 250.0, 1.0
CONSTANT = 1.5  # times the cost at 50 pods; two cost alike, the machine's noise allowed
EVENTS, EVENT_EACH_S = 1_000, 0.005
RATE = 150.0


def measure(stage: Stage) -> Section:
    """Start a proxy at each size, one after another, ``rounds`` times."""
    events = 200 if stage.quick else EVENTS
    section = Section(
        "slices",
        "EndpointSlices of a huge Service",
        about(__doc__),
        stage.rounds,
        {"endpoints": HUGE, "slices": HUGE // 100, "events": events, "callers_per_s": RATE},
    )
    fold_s: list[float] = []
    rss: dict[str, list[float]] = {}
    event_ms: list[float] = []
    choice: dict[str, list[float]] = {}
    for pods in (SMALL, LARGE, HUGE):
        with FakeFarm(stage.cores, pods=pods) as farm:
            for round_no in range(stage.rounds):
                stage.say(f"slices: {pods} pods, round {round_no + 1} of {stage.rounds}")
                with farm_proxy(farm, stage.cores) as proxy:
                    listed_s = _listed_s(farm)
                    rss.setdefault(f"{pods} pods", []).append(proxy.usage().peak_rss_mib)
                    choice.setdefault(f"{pods} pods", []).append(_lease_us(proxy, stage))
                    if pods == HUGE:
                        fold_s.append(listed_s)
                        event_ms.append(_event_ms(farm, proxy, events))
                    _all_known(proxy, pods)  # last: so large a status is no small thing to make
    section.row("list request to open door, 120,000 endpoints", "s", {"farm": fold_s})
    section.row("RSS of the proxy, highest", "MiB", rss)
    section.row("CPU an event of a 100-endpoint slice", "ms", {"farm": event_ms})
    section.row("CPU a lease, by known pods", "µs", choice)
    grown = statistics.median(choice[f"{HUGE} pods"]) / statistics.median(choice[f"{SMALL} pods"])
    section.verdicts = [
        Verdict("120,000 endpoints folded in", "s", FOLD_S, statistics.median(fold_s)),
        Verdict("RSS with them", "MiB", FOLD_MIB, statistics.median(rss[f"{HUGE} pods"])),
        Verdict("an event of a 100-endpoint slice", "ms", EVENT_MS, statistics.median(event_ms)),
        Verdict("a lease with 120,000 pods against one with 50", "x", CONSTANT, grown),
    ]
    return section


def _listed_s(farm: FakeFarm) -> float:
    """Return the time from the last start of a list to the open door (which is open now)."""
    opened_at = time.monotonic_ns()
    first = farm.tell("report")["listed_at_ns"]
    return float((opened_at - first[_first_page(first)]) / 1e9)


def _all_known(proxy: Contender, pods: int) -> None:
    with DIRECT.open(f"{proxy.admin}/status", timeout=60) as reply:
        known = json.load(reply)["pools"]["default"]["pods"]
    if len(known) != pods:
        raise StageError(f"the proxy knows {len(known)} pods of {pods}")


def _first_page(listed_at_ns: list[int]) -> int:
    """Return where the last list began: its pages follow each other within a second."""
    at = len(listed_at_ns) - 1
    while at and listed_at_ns[at] - listed_at_ns[at - 1] < 1e9:
        at -= 1
    return at


def _event_ms(farm: FakeFarm, proxy: Contender, events: int) -> float:
    before = proxy.usage().cpu_s
    farm.tell("flip", events=events, each_s=EVENT_EACH_S)
    wait_for(lambda: http_ok(f"{proxy.admin}/livez"), "the proxy has caught up")
    return (proxy.usage().cpu_s - before) / events * 1e3


def _lease_us(proxy: Contender, stage: Stage) -> float:
    plan = Plan(proxy.door, rate=RATE, seconds=stage.step_s / 2, session_ms=20.0)
    call(replace(plan, seconds=0.5), stage.cores)
    before = proxy.usage().cpu_s
    figures = call(plan, stage.cores)
    if figures["errors"]:
        raise StageError(f"leases failed: {figures['errors']}")
    return float((proxy.usage().cpu_s - before) / figures["done"] * 1e6)
