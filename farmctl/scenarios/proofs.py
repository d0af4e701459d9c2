"""Did the fault really happen? Looked at from outside, apart from what the testbed says it did."""

import asyncio

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
