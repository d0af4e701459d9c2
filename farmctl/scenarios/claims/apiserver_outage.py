"""apiserver-outage: the API server goes away, a pod dies meanwhile, and callers go on with the last known pool.

When the API server is back, the proxy must learn of the dead pod's successor by itself.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire import metrics

from farmctl.scenarios import checks
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.proofs import pod_is_gone
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "While the API server is away the last known pool keeps serving; afterwards the proxy catches up by itself."
SITTING_S = 60.0
CALLERS = 8
DEAF_S = 3.0  # a watch is never silent for so long while the API server is there: bookmarks come


@dataclass(frozen=True, slots=True)
class Evidence:
    sitting: Fate  # in a session from before the outage until after it
    during: Sequence[Fate]
    after: Sequence[Fate]
    watch_restarts: int
    caught_up_s: float  # from the API server's return to a pool of four live free pods


def judge(evidence: Evidence) -> list[Check]:
    served = [fate for fate in evidence.during if fate.outcome == Outcome.DONE and not fate.errors]
    after = [fate for fate in evidence.after if fate.outcome == Outcome.DONE and not fate.errors]
    quiet = evidence.sitting.outcome == Outcome.DONE and not evidence.sitting.errors
    return [
        checks.equal("callers served during the outage", len(evidence.during), len(served)),
        checks.equal("the session that ran through it was undisturbed", True, quiet),
        checks.at_least("watch restarts", 1, evidence.watch_restarts),
        checks.at_most("seconds to catch up after it", 60, evidence.caught_up_s),
        checks.equal("callers served afterwards", len(evidence.after), len(after)),
    ]


async def run(stage: Stage) -> None:
    rise = asyncio.Event()
    sitting = stage.crowd.sit("through", rise)
    await stage.in_session([sitting])
    restarts = (await stage.admin.metrics()).total(metrics.WATCH_RESTARTS)
    began_ms = stage.fault("the API server stops")
    await stage.testbed.stop_api()
    during, watch_age_s = await _outage(stage)
    outage_s = (stage.timeline.now_ms() - began_ms) / 1000
    stage.proof(f"the watch is {watch_age_s:.1f} s old after an outage of {outage_s:.1f} s")

    back_ms = stage.timeline.add("stage", "the API server returns").at_ms
    await stage.testbed.start_api()
    rise.set()
    await stage.crowd.settle(20, [sitting])
    await stage.until("four live free pods are known again", lambda: _caught_up(stage), 90)
    caught_up_s = (stage.timeline.now_ms() - back_ms) / 1000
    after = [stage.crowd.raw(f"after-{n}") for n in range(1, 5)]
    await stage.crowd.settle(40, after)
    stage.numbers |= {"outage seconds": outage_s, "seconds to catch up": caught_up_s}
    restarted = (await stage.admin.metrics()).total(metrics.WATCH_RESTARTS) - restarts
    stage.judge(
        judge(
            Evidence(
                sitting=sitting.fate(),
                during=[caller.fate() for caller in during],
                after=[caller.fate() for caller in after],
                watch_restarts=round(restarted),
                caught_up_s=caught_up_s,
            )
        )
    )


async def _outage(stage: Stage) -> tuple[list[Caller], float]:
    """Let a pod die and callers come while no slice tells of it; return the callers and the watch's age."""
    age_before = (await stage.admin.status()).watch_age_s or 0.0
    victim = next(pod.name for pod in (await stage.admin.pool()).pods if pod.state == "free")
    before = await stage.pod(victim)
    stage.fault(f"SIGKILL of {victim}, of which no slice will tell")
    await stage.testbed.kill(victim)
    if before is None or not await pod_is_gone(stage, before):
        stage.not_staged(f"{victim} still runs after the kill")
    during = [
        stage.crowd.browse(f"during-{n}", stage.pages.job(f"during-{n}", length_s=0.2))
        if n % 2
        else stage.crowd.raw(f"during-{n}", length_s=0.5)
        for n in range(1, CALLERS + 1)
    ]
    await stage.crowd.settle(SITTING_S, during)

    async def deaf() -> float | None:
        age = (await stage.admin.status()).watch_age_s
        return age if age is not None and age > age_before + DEAF_S else None

    age = await stage.arrange("the proxy has heard nothing from the API server for seconds", deaf, 40)
    return during, age or 0.0


async def _caught_up(stage: Stage) -> bool:
    live = {pod.uid for pod in await stage.testbed.pods() if pod.phase == "Running"}
    pool = await stage.admin.pool()
    return len(live) == 4 and {pod.uid for pod in pool.pods} == live and pool.in_state("free") == 4


SCENARIO = Scenario("apiserver-outage", CLAIM, ("stop_api", "start_api", "kill"), run)
