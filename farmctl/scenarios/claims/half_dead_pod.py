"""half-dead-pod: a pod's packets vanish while it runs, as on a machine whose network is gone; one session is lost.

No FIN and no RST tells anybody: a dial has to end by its own limit, and a silent session by keepalive. The pod's own
probe may go on saying ready. When packets pass again the pod is leased again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmctl.scenarios import checks, proofs
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome, struck
from farmctl.scenarios.stage import Stage

CLAIM = "A pod that is cut off from the network costs the session on it, told within twice the keepalive, and nobody else anything."
KEEPALIVE_S = (
    15.0  # FARMPROXY_KEEPALIVE_S as `farmctl up` leaves it: a silent connection is given up after twice that
)
NOTICED_S = 2 * KEEPALIVE_S + 10.0


@dataclass(frozen=True, slots=True)
class Evidence:
    newcomers: Sequence[Fate]  # came while a free pod was cut off
    timeouts: int  # dials into nothing
    victim: Fate  # its pod was cut off in its session
    noticed_s: float
    others: Sequence[Fate]  # sat beside it
    last: Sequence[Fate]  # as many as there are pods, once packets passed again


def judge(evidence: Evidence) -> list[Check]:
    return [
        checks.at_least("dials of the pod that was cut off", 1, evidence.timeouts),
        checks.none("callers that came meanwhile and saw an error", struck(evidence.newcomers)),
        checks.equal("the end of the caller on the lost pod", Outcome.LOST, evidence.victim.outcome),
        checks.at_most("seconds until it knew", NOTICED_S, evidence.noticed_s),
        checks.none("others that saw an error", struck(evidence.others)),
        checks.none("callers that saw an error afterwards", struck(evidence.last)),
    ]


async def run(stage: Stage) -> None:
    rise = asyncio.Event()
    sitting = [stage.crowd.sit(f"idle-{number}", rise) for number in range(1, 3)]
    await stage.in_session(sitting)
    await stage.leased(2)
    pool = await stage.admin.pool()
    free = next(pod.name for pod in pool.pods if pod.state == "free")
    victim = sitting[0]
    leased = pool.pod_of(victim.label)
    if not leased:
        stage.not_staged(f"the proxy shows no lease of {victim.label}")
    at = stage.fault(
        f"dropping all packets of {leased}, under the silent caller {victim.name}, and of {free}"
    )
    await stage.testbed.cut_off(leased)
    await stage.testbed.cut_off(free)
    newcomers, timeouts = await proofs.silent(stage, free, "cut")
    await stage.crowd.settle(90, [victim])
    noticed_s = (victim.ended_ms() - at) / 1000 if victim.ended.is_set() else float("inf")
    rise.set()
    await stage.crowd.settle(60, sitting)

    stage.note(f"letting the packets of {leased} and {free} pass again")
    await stage.testbed.mend(leased)
    await stage.testbed.mend(free)
    await stage.free(4, 120)
    last = [stage.crowd.browse(f"last-{n}", stage.pages.job(f"last-{n}")) for n in range(1, 5)]
    await stage.crowd.settle(90, last)
    await stage.quiet()
    stage.numbers |= {"seconds until the caller on the lost pod knew": noticed_s}
    stage.judge(
        judge(
            Evidence(
                newcomers=[caller.fate() for caller in newcomers],
                timeouts=timeouts,
                victim=victim.fate(),
                noticed_s=noticed_s,
                others=[caller.fate() for caller in sitting if caller is not victim],
                last=[caller.fate() for caller in last],
            )
        )
    )


SCENARIO = Scenario("half-dead-pod", CLAIM, ("cut_off", "mend"), run, limit_s=300.0)
