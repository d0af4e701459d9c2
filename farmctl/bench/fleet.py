"""d. A large farm on one core: thousands of pods, all of them busy, slices seconds late, a minute long.

The scale is cut to what this machine's descriptor limit can hold, and the result says so.
"""

import resource
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmctl.bench.contenders import Contender, farm_proxy
from farmctl.bench.plans import Plan
from farmctl.bench.processes import FakeFarm, Usage, begin_call, finish_call
from farmctl.bench.results import Section, Verdict
from farmctl.bench.stage import Stage

PODS = 8_000
RATE = 1_160.0
SECONDS = 60.0
SESSION_MS, RECYCLE_MS = 6_400.0, 500.0  # together 6.9 s
BYTES = 20 * 1024
LATE_S = 5.0
RSS_MIB = 200.0
# Of the proxy: two for each session, one for each question under way, and some for everything else.
SPARE_DESCRIPTORS = 1_500


@dataclass(slots=True)
class Watch:
    """The proxy's highs, looked at twice a second from outside."""

    rss_mib: float = 0.0
    descriptors: int = 0
    tcp_mib: float = 0.0
    cpu_s: list[float] = field(default_factory=list)

    def look(self, contender: Contender) -> None:
        usage: Usage = contender.usage()
        self.rss_mib = max(self.rss_mib, usage.rss_mib)
        self.descriptors = max(self.descriptors, usage.descriptors)
        self.tcp_mib = max(self.tcp_mib, tcp_memory_mib())
        self.cpu_s.append(usage.cpu_s)

    def follow(self, contender: Contender, stop: threading.Event) -> None:
        while not stop.wait(0.5):
            self.look(contender)


def measure(stage: Stage) -> Section:
    """Run the fleet once (a minute is its own repetition) and return the section."""
    pods, rate, seconds = scale(stage)
    section = Section(
        "fleet",
        "A large farm on one core",
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
        section.notes.append(
            f"Cut from {PODS} pods to {pods}: " + ("a quick run." if stage.quick else "descriptors.")
        )
    watch = Watch()
    with FakeFarm(stage.cores, pods=pods, late_s=LATE_S) as farm, farm_proxy(farm, stage.cores) as contender:
        before = farm.tell("report")
        figures = _run(contender, stage, _plan(contender, rate, seconds), watch)
        after = farm.tell("report")
    _rows(section, figures, watch, before, after)
    return section


def scale(stage: Stage) -> tuple[int, float, float]:
    """Return pods, callers a second and seconds that fit this machine's descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    share = SESSION_MS / (SESSION_MS + RECYCLE_MS)
    fit = int((limit - SPARE_DESCRIPTORS) / (1 + share))
    pods = min(800 if stage.quick else PODS, fit)
    return pods, RATE * pods / PODS, 10.0 if stage.quick else SECONDS


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


def _run(contender: Contender, stage: Stage, plan: Plan, watch: Watch) -> dict[str, Any]:
    stage.say(f"fleet: {plan.rate:.0f} callers a second for {plan.seconds:.0f} s")
    watch.look(contender)
    stop = threading.Event()
    follower = threading.Thread(target=watch.follow, args=(contender, stop))
    follower.start()
    try:
        return finish_call(begin_call(plan, stage.cores), plan)
    finally:
        stop.set()
        follower.join()


def _rows(
    section: Section, figures: dict[str, Any], watch: Watch, before: dict[str, Any], after: dict[str, Any]
) -> None:
    failed = sum(figures["errors"].values()) + figures["left_open"]
    wall_s = figures["wall_s"]
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
        ("load of the proxy's core", "share", (watch.cpu_s[-1] - watch.cpu_s[0]) / wall_s),
        ("load of the callers", "share", figures["cpu_s"] / wall_s),
        ("load of the fake pods", "share", (after["cpu_s"] - before["cpu_s"]) / wall_s),
        ("callers late by the generator, p99", "ms", figures["lag_ms"]["p99"]),
        ("dials answered 409", "", after["busy_answers"]),
        ("slice events", "", after["events"] - before["events"]),
    ):
        section.row(figure, unit, {"farm": [float(value)]})
    section.verdicts = [
        Verdict("callers that saw an error", "", 0, failed, note=str(figures["errors"] or "")),
        Verdict("two jobs on one pod", "", 0, after["doubles"] - before["doubles"]),
        Verdict("RSS of the proxy", "MiB", RSS_MIB, watch.rss_mib),
        Verdict("pods of the asked 8,000", "", PODS, section.conditions["pods"], at_least=True),
    ]


def tcp_memory_mib() -> float:
    """Return the memory of all TCP sockets of this machine (proc(5), /proc/net/sockstat, in pages)."""
    line = next(
        line for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:")
    )
    words = line.split()
    return int(words[words.index("mem") + 1]) * resource.getpagesize() / 2**20
