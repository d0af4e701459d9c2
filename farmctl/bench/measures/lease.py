"""What a lease costs the proxy in CPU, step by step, beside HAProxy doing the same work.

Both proxies run at once on the same core, each with fake pods of its own; the load goes to one, then to the
other, step by step. A step's cost is the CPU time of the whole process divided by its callers.
"""

import statistics
import time
from contextlib import ExitStack
from typing import Any

from farmctl.bench import profiles
from farmctl.bench.load.plans import Plan
from farmctl.bench.load.processes import FakeFarm, call
from farmctl.bench.load.proxies_under_test import FARM, HAPROXY, Contender, farm_proxy, haproxy
from farmctl.bench.results import Section, Verdict
from farmctl.bench.stage import Stage, about
from farmctl.errors import StageError

PODS = 50
RATE = 500.0  # callers a second: the farm's proxy is about half busy; one that idles pays for cold caches
SESSION_MS = 50.0
TRIP_BYTES = 500
ANSWER_BYTES = 20 * 1024
TARGET, MOONSHOT = 3.0, 1.5

# What a caller does in each step; each holds the one before it.
STEPS: dict[str, dict[str, Any]] = {
    "connect": {"step": "connect"},
    "refused": {"step": "refused"},
    "discovery": {"step": "version"},
    "lease": {"step": "lease", "session_ms": SESSION_MS},
    "lease+1": {"step": "lease", "session_ms": SESSION_MS, "trips": 1, "body": TRIP_BYTES},
    "lease+11": {"step": "lease", "session_ms": SESSION_MS, "trips": 11, "body": TRIP_BYTES},
    "render": {"step": "render", "session_ms": SESSION_MS, "body": 1024, "wishes": {"bytes": ANSWER_BYTES}},
}
MAIN = "lease+1"
Costs = dict[str, dict[str, list[float]]]  # step -> contender -> microseconds a caller, one a round


def measure(stage: Stage) -> Section:
    """Run the rounds and return the section."""
    section = Section(
        "lease",
        "CPU of the proxy per lease",
        about(__doc__),
        stage.rounds,
        {"pods": PODS, "callers_per_s": RATE, "session_ms": SESSION_MS, "message_bytes": TRIP_BYTES},
    )
    costs: Costs = {step: {FARM: [], HAPROXY: []} for step in STEPS}
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(FakeFarm(stage.cores, pods=PODS)) for _ in range(2))
        farm = stack.enter_context(farm_proxy(ours, stage.cores))
        rival = stack.enter_context(haproxy(theirs, stage.cores))
        for contender in (farm, rival):
            cost(contender, stage, MAIN, seconds=1.0)
        for round_no in range(stage.rounds):
            for step in STEPS:
                stage.say(f"lease: round {round_no + 1} of {stage.rounds}, {step}")
                for contender in (farm, rival):
                    costs[step][contender.name].append(cost(contender, stage, step))
        for name, words in (("fake pods of the farm", ours), ("fake pods of HAProxy", theirs)):
            _no_doubles(name, words)
    _rows(section, costs)
    _idle(section, stage)
    missed = not all(verdict.met for verdict in section.verdicts)
    plan = Plan(("", 0), rate=RATE, **STEPS[MAIN])
    section.profiles = profiles.of_farm(stage, plan, pods=PODS, functions=missed)
    return section


def cost(contender: Contender, stage: Stage, step: str, seconds: float = 0.0) -> float:
    """Return the microseconds of CPU that one caller of this step costs; raises StageError on any error."""
    long_s = stage.step_s * (2 if step == MAIN else 1)
    plan = Plan(contender.door, rate=RATE, seconds=seconds or long_s, **STEPS[step])
    before = contender.usage().cpu_s
    figures = call(plan, stage.cores)
    used_s = contender.usage().cpu_s - before
    if figures["errors"] or figures["left_open"]:
        raise StageError(f"{contender.name} failed callers of step {step}: {figures['errors']}")
    return float(used_s / figures["done"] * 1e6)


def _no_doubles(name: str, farm: FakeFarm) -> None:
    if doubles := farm.tell("report")["doubles"]:
        raise StageError(f"{name} were asked {doubles} times to run two jobs at once")


def _rows(section: Section, costs: Costs) -> None:
    both = (FARM, HAPROXY)

    def less(step: str, base: str, parts: float = 1.0) -> dict[str, list[float]]:
        return {
            name: [(a - b) / parts for a, b in zip(costs[step][name], costs[base][name], strict=True)]
            for name in both
        }

    unit = "µs"
    section.row("accept and close", unit, costs["connect"])
    section.row("+ read the head, refuse", unit, less("refused", "connect"))
    section.row("+ read the head, answer discovery", unit, less("discovery", "connect"))
    section.row("+ the lease itself: grant, dial, session, end", unit, less("lease", "refused"))
    section.row("+ one round trip of 500 bytes", unit, less("lease+11", "lease+1", 10.0))
    section.row("a whole lease (socket, one round trip)", unit, costs[MAIN])
    section.row("a whole lease (HTTP job, 20 KiB answer)", unit, costs["render"])
    ratios = [a / b for a, b in zip(costs[MAIN][FARM], costs[MAIN][HAPROXY], strict=True)]
    section.row("a whole lease, farm / HAProxy", "x", {"ratio": ratios})
    value = statistics.median(ratios)
    section.verdicts = [
        Verdict("CPU of a lease against HAProxy's", "x", TARGET, value),
        Verdict("the same, moonshot", "x", MOONSHOT, value),
    ]


def _idle(section: Section, stage: Stage) -> None:
    """What standing by costs: HAProxy's checks of 50 pods each second, the farm's watch of one slice."""
    idle: dict[str, list[float]] = {FARM: [], HAPROXY: []}
    with ExitStack() as stack:
        pods = stack.enter_context(FakeFarm(stage.cores, pods=PODS))
        farm = stack.enter_context(farm_proxy(pods, stage.cores))
        checks = {"server": "check inter 1s", "backend": "  option httpchk GET /readyz"}
        rival = stack.enter_context(haproxy(pods, stage.cores, **checks))
        for _ in range(stage.rounds):
            before = {c.name: c.usage().cpu_s for c in (farm, rival)}
            time.sleep(stage.step_s)
            for contender in (farm, rival):
                used_s = contender.usage().cpu_s - before[contender.name]
                idle[contender.name].append(used_s / stage.step_s * 1e6)
    section.row("standing by, a second (HAProxy: its checks; farm: its watch)", "µs", idle)
