"""scale-down-spares-busy: all pods are in use when the farm is halved, so busy pods must be told to go.

They drain: the session on them ends by itself, then the pod goes, and no new caller is put on one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmctl.scenarios import checks
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "Scaling down ends no session: a busy pod that must go finishes what runs on it, takes nothing new, then goes."
AFTER = 2


@dataclass(frozen=True, slots=True)
class Evidence:
    sitting: Sequence[Fate]
    newcomers: Sequence[Fate]
    told_to_go: Sequence[str]  # names of pods
    newcomers_on: Sequence[str]  # pods (namespace/name/uid) that served the newcomers
    pods_left: int


def judge(evidence: Evidence) -> list[Check]:
    spared = [fate for fate in evidence.sitting if fate.outcome == Outcome.DONE and not fate.errors]
    served = [fate for fate in evidence.newcomers if fate.outcome == Outcome.DONE and not fate.errors]
    wrong = [pod for pod in evidence.newcomers_on if pod.split("/")[1] in evidence.told_to_go]
    return [
        checks.equal("sessions that ran to their end", len(evidence.sitting), len(spared)),
        checks.equal("newcomers served without an error", len(evidence.newcomers), len(served)),
        checks.none("newcomers put on a pod that was told to go", wrong),
        checks.equal("pods left", AFTER, evidence.pods_left),
    ]


async def run(stage: Stage) -> None:
    rise = asyncio.Event()
    sitting = [
        stage.crowd.sit(f"sits-{number}", rise)
        if number < 3
        else stage.crowd.raw(f"sits-{number}", until=rise)
        for number in range(1, 5)
    ]
    await stage.in_session(sitting)
    await stage.leased(4)
    told_to_go, newcomers = await _halved(stage, rise)

    async def left() -> bool:
        return len(await stage.testbed.pods()) == AFTER

    await stage.until(f"{AFTER} pods are left", left, 40)
    stage.judge(
        judge(
            Evidence(
                sitting=[caller.fate() for caller in sitting],
                newcomers=[caller.fate() for caller in newcomers],
                told_to_go=told_to_go,
                newcomers_on=[grant.pod for caller in newcomers for grant in caller.grants],
                pods_left=len(await stage.testbed.pods()),
            )
        )
    )


async def _halved(stage: Stage, rise: asyncio.Event) -> tuple[list[str], list[Caller]]:
    """Scale down under the leased pods; return who was told to go, and the callers that came then."""
    stage.fault(f"scaling from 4 pods to {AFTER} while all are leased")
    async with asyncio.TaskGroup() as group:
        scaling = group.create_task(stage.testbed.scale(AFTER))

        async def told() -> list[str]:
            pods = await stage.testbed.pods()
            going = [pod.name for pod in pods if pod.phase == "Terminating"]
            return going if len(going) == 4 - AFTER else []

        told_to_go = await stage.arrange(f"{4 - AFTER} busy pods are terminating", told, 20)

        async def known() -> bool:
            return sum(pod.terminating for pod in (await stage.admin.pool()).pods) == 4 - AFTER

        await stage.arrange("the proxy knows that they terminate", known, 20)
        stage.proof(f"terminating while leased: {', '.join(told_to_go)}")
        newcomers = [stage.crowd.raw(f"new-{number}") for number in range(1, 5)]
        await stage.held(len(newcomers))
        rise.set()
        await stage.crowd.settle(60)
        await scaling
    return told_to_go, newcomers


SCENARIO = Scenario("scale-down-spares-busy", CLAIM, ("scale",), run)
