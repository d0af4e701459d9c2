"""A large farm on one core: thousands of pods, all of them busy, slices seconds late, a minute long.

The scale is cut to what this machine's descriptor limit can hold, and the result says so.
"""

import os
import resource
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmctl.bench.load.plans import Plan
from farmctl.bench.load.processes import FakeFarm, Usage, begin_call, finish_call
from farmctl.bench.load.proxies_under_test import Contender, farm_proxy
from farmctl.bench.results import Section, Verdict
from farmctl.bench.stage import Stage, about
from farmctl.errors import StageError

PODS = 8_000
RATE = 1_160.0
SECONDS = 60.0
SESSION_MS, RECYCLE_MS = 6_400.0, 500.0  # together 6.9 s
FULL_S = 8.0  # after so long as many sessions end as begin
BYTES = 20 * 1024
LATE_S = 5.0
RSS_MIB = 200.0
# Callers held at most, for each pod: the load asked for is the pods' whole capacity, so the held only grow. This is
# what a queue model says of 0.2 s from a pod's turning free to its next session (docs/decisions/0008).
HELD_A_POD = 0.214
# Of the proxy: two a session, one a question, of a caller held its own and that of its pod, and some for all else.
DESCRIPTORS_A_POD = 1 + SESSION_MS / (SESSION_MS + RECYCLE_MS) + 2 * HELD_A_POD
SPARE_DESCRIPTORS = 300


@dataclass(slots=True)
class Watch:
    """All programs looked at twice a second from outside: the proxy's highs, and everyone's load once the farm is
    full. ``cores``: where looking may cost time, for 17,000 descriptors are counted, and not on the proxy's core.
    """

    contender: Contender
    others: dict[str, int]  # name: process
    cores: frozenset[int]
    rss_mib: float = 0.0
    descriptors: int = 0
    tcp_mib: float = 0.0
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)  # when, CPU seconds of each

    def look(self) -> None:
        usage = self.contender.usage()
        self.rss_mib = max(self.rss_mib, usage.rss_mib)
        self.descriptors = max(self.descriptors, usage.descriptors)
        self.tcp_mib = max(self.tcp_mib, tcp_memory_mib())
        used = {name: Usage.of(pid).cpu_s for name, pid in self.others.items()}
        self.samples.append((time.monotonic(), {"proxy": usage.cpu_s, **used}))

    def follow(self, stop: threading.Event) -> None:
        os.sched_setaffinity(0, self.cores)  # of this thread
        while not stop.wait(0.5):
            try:
                self.look()
            except StageError:  # the callers are done
                return

    def loads(self, since_s: float, until_s: float) -> dict[str, float]:
        """Return each program's share of a core between two moments, counted from the first look."""
        start = self.samples[0][0]
        within = [sample for sample in self.samples if since_s <= sample[0] - start <= until_s]
        (first_at, first), (last_at, last) = within[0], within[-1]
        return {name: (last[name] - first[name]) / (last_at - first_at) for name in last}


def measure(stage: Stage) -> Section:
    """Run the fleet once (a minute is its own repetition) and return the section."""
    pods, rate, seconds = scale(stage)
    section = Section(
        "fleet",
        "A large farm on one core",
        about(__doc__),
        1,
        {
            "pods": pods,
            "asked_pods": PODS,
            "callers_per_s": rate,
            "seconds": seconds,
            "session_ms": SESSION_MS,
            "recycle_ms": RECYCLE_MS,
            "bytes_each_way": BYTES,
            "slices_late_s": LATE_S,
        },
    )
    if pods < PODS:
        permitted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        why = f"{permitted:,} descriptors are permitted, {descriptors(PODS):,.0f} may be needed."
        section.notes.append(
            f"Cut from {PODS:,} pods to {pods:,}: " + ("a quick run." if stage.quick else why)
        )
    with FakeFarm(stage.cores, pods=pods, late_s=LATE_S) as farm, farm_proxy(farm, stage.cores) as contender:
        before = farm.tell("report")
        plan = _plan(contender, rate, seconds)
        stage.say(f"fleet: {plan.rate:.0f} callers a second for {plan.seconds:.0f} s")
        callers = begin_call(plan, stage.cores)
        watch = Watch(contender, {"callers": callers.pid, "fake pods": farm.pid}, stage.cores.generators)
        figures = _follow(watch, callers, plan)
        after = farm.tell("report")
    _rows(section, figures, watch, before, after, quick=stage.quick)
    return section


def scale(stage: Stage) -> tuple[int, float, float]:
    """Return pods, callers a second and seconds that fit this machine's descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    fit = int((limit - SPARE_DESCRIPTORS) / DESCRIPTORS_A_POD)
    pods = min(800 if stage.quick else PODS, fit)
    return pods, RATE * pods / PODS, 10.0 if stage.quick else SECONDS


def descriptors(pods: int) -> float:
    """What the proxy of so many pods may need."""
    return pods * DESCRIPTORS_A_POD + SPARE_DESCRIPTORS


def _plan(contender: Contender, rate: float, seconds: float) -> Plan:
    return Plan(
        contender.door,
        step="render",
        rate=rate,
        seconds=seconds,
        session_ms=SESSION_MS,
        vary=0.5,
        body=BYTES,
        wishes={"recycle_ms": RECYCLE_MS, "bytes": BYTES},
    )


def _follow(watch: Watch, callers: subprocess.Popen[str], plan: Plan) -> dict[str, Any]:
    watch.look()
    stop = threading.Event()
    follower = threading.Thread(target=watch.follow, args=(stop,))
    follower.start()
    try:
        return finish_call(callers, plan)
    finally:
        stop.set()
        follower.join()


def _rows(
    section: Section,
    figures: dict[str, Any],
    watch: Watch,
    before: dict[str, Any],
    after: dict[str, Any],
    *,
    quick: bool,
) -> None:
    failed = sum(figures["errors"].values()) + figures["left_open"]
    loads = watch.loads(
        FULL_S if section.conditions["seconds"] > 2 * FULL_S else 1.0, section.conditions["seconds"]
    )
    for figure, unit, value in (
        ("leases", "", figures["done"]),
        ("callers that saw an error", "", failed),
        ("most callers at once", "", figures["most_open"]),
        ("hold, p50", "ms", figures["hold_ms"]["p50"]),
        ("hold, p99", "ms", figures["hold_ms"]["p99"]),
        ("grant (pod free and caller there, to session), p50", "ms", figures["grant_ms"]["p50"]),
        ("grant, p99", "ms", figures["grant_ms"]["p99"]),
        ("RSS of the proxy, highest", "MiB", watch.rss_mib),
        ("descriptors of the proxy, highest", "", watch.descriptors),
        ("socket memory of the machine, highest", "MiB", watch.tcp_mib),
        *((f"load of the {name}", "of a core", load) for name, load in loads.items()),
        ("callers late by the generator, p99", "ms", figures["lag_ms"]["p99"]),
        ("dials answered 409", "", after["busy_answers"]),
        ("slice events", "", after["events"] - before["events"]),
    ):
        section.row(figure, unit, {"farm": [float(value)]})
    section.verdicts = [
        Verdict("callers that saw an error", "", 0, failed, note=str(figures["errors"] or "")),
        Verdict("two jobs on one pod", "", 0, after["doubles"] - before["doubles"]),
        Verdict("RSS of the proxy", "MiB", RSS_MIB, watch.rss_mib),
    ]
    if not quick:
        section.verdicts.append(
            Verdict("pods, as many as asked for", "", PODS, section.conditions["pods"], at_least=True)
        )


def tcp_memory_mib() -> float:
    """Return the memory of all TCP sockets of this machine (proc(5), /proc/net/sockstat, in pages)."""
    line = next(
        line for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:")
    )
    words = line.split()
    return int(words[words.index("mem") + 1]) * resource.getpagesize() / 2**20
