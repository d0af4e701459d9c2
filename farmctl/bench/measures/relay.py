"""What relayed bytes cost the proxy, and how much later a small message arrives through it.

Streams flow from pod to caller, as screenshots and pages do. HAProxy is measured twice, with its defaults and
with splice, and its better one is the rival.
"""

import statistics
from contextlib import ExitStack

from farmctl.bench import profiles
from farmctl.bench.fakes.fake_pods import address
from farmctl.bench.load.plans import Plan
from farmctl.bench.load.processes import FakeFarm, call
from farmctl.bench.load.proxies_under_test import FARM, Contender, farm_proxy, haproxy
from farmctl.bench.results import Section, Verdict
from farmctl.bench.stage import Stage, about
from farmctl.errors import StageError

PODS = 8
STREAMS = 4
STREAM_BYTES = 256 << 20
TRIP_BYTES = 500
TRIPS = 400  # a connection
TARGET = 0.7
DEFAULT, SPLICE, DIRECT = "haproxy default", "haproxy splice", "direct"
SPLICE_WORDS = "  option splice-auto\n  option splice-request\n  option splice-response"
Samples = dict[str, list[float]]


def measure(stage: Stage) -> Section:
    """Run the rounds and return the section."""
    section = Section(
        "relay",
        "Relayed bytes and small messages",
        about(__doc__),
        stage.rounds,
        {"streams": STREAMS, "stream_mib": STREAM_BYTES >> 20, "message_bytes": TRIP_BYTES},
    )
    names = (FARM, DEFAULT, SPLICE)
    cpu: Samples = {name: [] for name in names}
    speed: Samples = {name: [] for name in names}
    p50: Samples = {name: [] for name in (DIRECT, *names)}
    p99: Samples = {name: [] for name in (DIRECT, *names)}
    with ExitStack() as stack:
        farms = [stack.enter_context(FakeFarm(stage.cores, pods=PODS)) for _ in range(4)]
        doors: dict[str, Contender] = {
            FARM: stack.enter_context(farm_proxy(farms[0], stage.cores)),
            DEFAULT: stack.enter_context(haproxy(farms[1], stage.cores)),
            SPLICE: stack.enter_context(haproxy(farms[2], stage.cores, defaults=SPLICE_WORDS)),
        }
        for round_no in range(stage.rounds):
            stage.say(f"relay: round {round_no + 1} of {stage.rounds}")
            for name, contender in doors.items():
                cost_s, gib_s = stream(contender, stage)
                cpu[name].append(cost_s)
                speed[name].append(gib_s)
            ends = {DIRECT: (address(0), farms[3].pod_port), **{n: c.door for n, c in doors.items()}}
            for name, end in ends.items():
                trip = small_messages(end, stage)
                p50[name].append(trip["p50"])
                p99[name].append(trip["p99"])
    _rows(section, cpu, speed, p50, p99)
    if not section.verdicts[0].met:
        plan = Plan(("", 0), step="stream", together=STREAMS, wishes={"stream": STREAM_BYTES})
        section.profiles.extend(profiles.of_farm(stage, plan, pods=PODS))
    return section


def stream(contender: Contender, stage: Stage) -> tuple[float, float]:
    """Return CPU seconds a GiB, and GiB a second."""
    plan = Plan(
        contender.door,
        step="stream",
        together=STREAMS,
        seconds=stage.step_s / 2,
        wishes={"stream": STREAM_BYTES},
    )
    before = contender.usage().cpu_s
    figures = call(plan, stage.cores)
    used_s = contender.usage().cpu_s - before
    if figures["errors"] or not figures["streamed"]:
        raise StageError(f"{contender.name} broke streams: {figures['errors']}")
    gib = figures["streamed"] / 2**30
    return used_s / gib, gib / figures["wall_s"]


def small_messages(door: tuple[str, int], stage: Stage) -> dict[str, float]:
    """Return the percentiles (ms) of round trips on one connection after another."""
    plan = Plan(door, together=1, seconds=stage.step_s / 2, trips=TRIPS, body=TRIP_BYTES)
    figures = call(plan, stage.cores)
    if figures["errors"]:
        raise StageError(f"round trips through {door} failed: {figures['errors']}")
    percentiles: dict[str, float] = figures["trip_ms"]
    return percentiles


def _rows(section: Section, cpu: Samples, speed: Samples, p50: Samples, p99: Samples) -> None:
    better = min((DEFAULT, SPLICE), key=lambda name: statistics.median(cpu[name]))
    ratios = [ours / theirs for ours, theirs in zip(cpu[FARM], cpu[better], strict=True)]
    section.row("CPU a GiB relayed", "s", cpu)
    section.row(f"CPU a GiB, farm / {better}", "x", {"ratio": ratios})
    section.row("throughput, one core", "GiB/s", speed)
    section.row("round trip of 500 bytes, p50", "ms", p50)
    section.row("round trip of 500 bytes, p99", "ms", p99)
    for figure, samples in (("p50", p50), ("p99", p99)):
        added = {
            name: [through - straight for through, straight in zip(values, samples[DIRECT], strict=True)]
            for name, values in samples.items()
            if name != DIRECT
        }
        section.row(f"added to a round trip, {figure}", "ms", added)
    value = statistics.median(ratios)
    section.verdicts = [Verdict(f"CPU a GiB against {better}", "x", TARGET, value)]
