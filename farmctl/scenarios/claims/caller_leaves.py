"""caller-leaves: held callers go away (closed or reset), and neither their place nor a dial is spent on them.

A caller that leaves in the middle of its session gives its pod back the same way.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire import metrics
from farmwire.reasons import DialResult

from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "A caller that goes away while held frees its place within a second, costs no dial, and nobody waits for it."
WITHIN_S = 1.0
STAYING = ("stays-1", "stays-2")
LEAVING = (("leaves-fin", "fin"), ("leaves-rst", "rst"), ("leaves-http", "fin"))


@dataclass(frozen=True, slots=True)
class Evidence:
    places_freed_s: float
    left: Sequence[Fate]
    others: Sequence[Fate]
    leases_granted: int
    leases_expected: int
    abandoned_dials: int
    labels_leased: Sequence[str]
    reset_session_freed_s: float  # from the reset of a session to its lease's end


def judge(evidence: Evidence) -> list[Check]:
    done = [fate for fate in evidence.others if fate.outcome == Outcome.DONE and not fate.errors]
    gone = {fate.caller for fate in evidence.left}
    served = [label for label in evidence.labels_leased if label.rpartition("/")[2] in gone]
    return [
        checks.at_most("seconds until the places were free", WITHIN_S, evidence.places_freed_s),
        checks.equal("leases granted", evidence.leases_expected, evidence.leases_granted),
        checks.none("leases of callers that had left", served),
        checks.equal("dials abandoned", 0, evidence.abandoned_dials),
        checks.equal("callers that stayed and are done", len(evidence.others), len(done)),
        checks.at_most(
            "seconds until a reset session's lease ended", WITHIN_S, evidence.reset_session_freed_s
        ),
    ]


async def run(stage: Stage) -> None:
    before = await stage.admin.metrics()
    stay = asyncio.Event()
    sitting = [stage.crowd.raw(f"sits-{number}", until=stay) for number in range(1, 5)]
    await stage.in_session(sitting)
    leaving, staying, freed_s = await _held_leave(stage)
    reset_s = await _session_reset(stage, sitting[0])
    stay.set()
    await stage.crowd.settle(60)
    await stage.quiet()

    after = await stage.admin.metrics()

    def counted(name: str, **labels: str) -> int:
        return round(after.total(name, **labels) - before.total(name, **labels))

    labels = [str(told.get("label")) for told in witnesses.events(await stage.proxies(), "lease-ended")]
    stage.numbers |= {"seconds to free the places": freed_s, "seconds to end the reset lease": reset_s}
    stage.judge(
        judge(
            Evidence(
                places_freed_s=freed_s,
                left=[caller.fate() for caller in leaving],
                others=[caller.fate() for caller in [*sitting[1:], *staying]],
                leases_granted=counted(metrics.LEASES_GRANTED),
                leases_expected=len(sitting) + len(staying),
                abandoned_dials=counted(metrics.DIALS, result=DialResult.ABANDONED),
                labels_leased=labels,
                reset_session_freed_s=reset_s,
            )
        )
    )


async def _held_leave(stage: Stage) -> tuple[list[Caller], list[Caller], float]:
    """Return who left, who stayed, and seconds from their leaving until their places were free."""
    leaving = [
        stage.crowd.render(name, stage.pages.job(name)) if "http" in name else stage.crowd.raw(name)
        for name, _ in LEAVING
    ]
    staying = [stage.crowd.raw(name) for name in STAYING]
    await stage.held(len(LEAVING) + len(STAYING))
    at = stage.fault("three held callers leave: closed, reset, an HTTP request dropped")
    for caller, (_, how) in zip(leaving, LEAVING, strict=True):
        caller.leave(how)
    await stage.crowd.settle(5, leaving)
    if any(caller.outcome is not Outcome.LEFT for caller in leaving):
        stage.not_staged("a caller that should have left did not")

    async def freed() -> bool:
        return len((await stage.admin.pool()).held) == len(STAYING)

    await stage.until("the places of those who left are free", freed, 15)
    freed_s = (stage.timeline.now_ms() - at) / 1000
    stage.proof(f"the three sockets are closed; {len(STAYING)} callers are held after {freed_s:.2f} s")
    return leaving, staying, freed_s


async def _session_reset(stage: Stage, caller: Caller) -> float:
    """Return the seconds from the reset of a running session until its lease was over."""
    at = stage.fault("a caller resets its connection in the middle of its session")
    caller.leave("rst")

    async def ended() -> bool:
        return not (await stage.admin.pool()).pod_of(caller.label)

    await stage.until("the reset session's lease ended", ended, 10)
    return (stage.timeline.now_ms() - at) / 1000


SCENARIO = Scenario("caller-leaves", CLAIM, (), run)
