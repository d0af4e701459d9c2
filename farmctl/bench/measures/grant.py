"""From a pod turning free to the held caller's first byte: pods clean at once, and pods that recycle.

There are always more callers than pods. The pod itself says in its answer when it turned free, on the clock
that the caller reads too, so nothing but the proxy stands between the two moments.
"""

import statistics
from collections.abc import Mapping
from contextlib import ExitStack

from farmctl.bench import profiles
from farmctl.bench.load.plans import Plan
from farmctl.bench.load.processes import FakeFarm, call
from farmctl.bench.load.proxies_under_test import FARM, HAPROXY, Contender, farm_proxy, haproxy
from farmctl.bench.results import Section, Verdict
from farmctl.bench.stage import Stage, about
from farmctl.errors import StageError

PODS = 20
CALLERS = 30
SESSION_MS = 200.0
RECYCLE_MS = 300.0
CLEAN_P99_MS = 3.0
SOONER = 5.0
# A check each second, and a server marked down by the 503 of a pod that recycles; the caller is tried elsewhere.
MARK_DOWN = {
    "server": "check inter 1s fall 1 rise 1 observe layer7 error-limit 1 on-error mark-down",
    "backend": "  option httpchk GET /readyz\n  retries 20\n  retry-on 503 conn-failure\n  option redispatch 1",
}
Samples = dict[str, dict[str, list[float]]]  # percentile -> contender -> milliseconds


def measure(stage: Stage) -> Section:
    """Run the rounds of both kinds of pod and return the section."""
    section = Section(
        "grant",
        "From a free pod to the held caller's first byte",
        about(__doc__),
        stage.rounds,
        {"pods": PODS, "callers": CALLERS, "session_ms": SESSION_MS, "recycle_ms": RECYCLE_MS},
    )
    clean = _rounds(section, stage, "clean pods", recycle_ms=0.0, words={})
    slow = _rounds(section, stage, f"recycle {RECYCLE_MS:.0f} ms", recycle_ms=RECYCLE_MS, words=MARK_DOWN)
    sooner = [theirs / ours for ours, theirs in zip(slow["p50"][FARM], slow["p50"][HAPROXY], strict=True)]
    section.row("recycling pods, HAProxy / farm, p50", "x", {"ratio": sooner})
    section.verdicts = [
        Verdict("clean pods, p99", "ms", CLEAN_P99_MS, statistics.median(clean["p99"][FARM])),
        Verdict("recycling pods, times sooner", "x", SOONER, statistics.median(sooner), at_least=True),
    ]
    if not section.verdicts[0].met:
        section.profiles.extend(profiles.of_farm(stage, _plan(("", 0), stage, 0.0), pods=PODS))
    return section


def _plan(door: tuple[str, int], stage: Stage, recycle_ms: float) -> Plan:
    return Plan(
        door,
        together=CALLERS,
        seconds=stage.step_s * 1.5,
        session_ms=SESSION_MS,
        vary=0.5,  # or all pods would turn free at the same moments
        warm_s=0.5,
        wishes={"recycle_ms": recycle_ms},
    )


def _rounds(
    section: Section, stage: Stage, kind: str, *, recycle_ms: float, words: Mapping[str, str]
) -> Samples:
    samples: Samples = {share: {FARM: [], HAPROXY: []} for share in ("p50", "p99")}
    refused = 0
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(FakeFarm(stage.cores, pods=PODS)) for _ in range(2))
        farm = stack.enter_context(farm_proxy(ours, stage.cores))
        rival = stack.enter_context(haproxy(theirs, stage.cores, **words))
        for round_no in range(stage.rounds):
            stage.say(f"grant: {kind}, round {round_no + 1} of {stage.rounds}")
            for contender in (farm, rival):
                grants, errors = _grants(contender, stage, recycle_ms)
                refused += errors
                for share, values in samples.items():
                    values[contender.name].append(grants[share])
    for share, values in samples.items():
        section.row(f"{kind}: free to first byte, {share}", "ms", values)
    if refused:
        section.notes.append(f"{kind}: HAProxy answered {refused} callers with 503 after its retries.")
    return samples


def _grants(contender: Contender, stage: Stage, recycle_ms: float) -> tuple[dict[str, float], int]:
    figures = call(_plan(contender.door, stage, recycle_ms), stage.cores)
    errors = sum(figures["errors"].values())
    if not figures["grant_ms"]["count"] or (errors and contender.name == FARM):
        raise StageError(f"{contender.name} granted {figures['done']}, errors {figures['errors']}")
    grants: dict[str, float] = figures["grant_ms"]
    return grants, errors
