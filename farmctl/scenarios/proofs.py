"""Did the fault really happen? Looked at from outside, apart from what the testbed says it did."""

import asyncio

from farmwire.reasons import DialResult

from farmctl.scenarios.callers import Caller
from farmctl.scenarios.stage import Stage
from farmctl.testbeds.base import Pod

SEEN_S = 5.0


async def pod_is_gone(stage: Stage, before: Pod) -> bool:
    """Whether this incarnation of the pod is no more: another one, a restarted one, or none stands in its place."""

    async def gone() -> bool:
        now = next((pod for pod in await stage.testbed.pods() if pod.uid == before.uid), None)
        if now is None or now.restarts > before.restarts or now.phase == "Failed":
            return True
        return not await stage.testbed.listens(before)

    try:
        async with asyncio.timeout(SEEN_S):
            while not await gone():
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    return True


async def silent(stage: Stage, pod: str, job: str, callers: int = 4) -> tuple[list[Caller], int]:
    """More callers than pods that answer, so that one of them is given ``pod``, which does not: the callers, once all
    have ended, and how many dials ran out of time.
    """
    before = await stage.dials(DialResult.TIMEOUT)
    newcomers = [
        stage.crowd.browse(f"page-{number}", stage.pages.job(f"{job}-{number}", length_s=0.5))
        for number in range(1, callers + 1)
    ]

    async def dialled() -> bool:
        return await stage.dials(DialResult.TIMEOUT) > before

    await stage.arrange(f"{pod} was dialled", dialled, 30)
    stage.proof(f"{pod} was dialled and did not answer")
    await stage.crowd.settle(120, newcomers)
    return newcomers, round(await stage.dials(DialResult.TIMEOUT) - before)
