"""The autoscaler of a cluster without a metrics chain: the HPA's own formula, run here on what the proxy says.

It reads farmproxy_demand from the proxy's admin port and sets the Deployment's replicas, as kube-controller-manager
does over Prometheus and an adapter; of those two parts it says nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from farmctl.errors import StageError
from farmctl.testbeds.base import Scaling
from farmctl.testbeds.hpa import Autoscaler, Bounds


class Kept:
    """Owns tasks that outlive the verb that began them; what fails in one is told when it is next asked."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        await self.stop(name)
        self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)

    async def stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, StageError):
                await task

    async def stop_all(self) -> None:
        for name in list(self._tasks):
            await self.stop(name)


async def follow(
    scaling: Scaling,
    *,
    demand: Callable[[], Awaitable[float | None]],
    counts: Callable[[], Awaitable[tuple[int, int]]],
    scale: Callable[[int], Awaitable[None]],
) -> None:
    """Sync for ever. ``counts``: wanted and existing pods. An API server that is away is waited for."""
    bounds = Bounds(scaling.low, scaling.high, scaling.target, scaling.scale_down_wait_s)
    autoscaler, clock = Autoscaler(bounds), asyncio.get_running_loop().time
    while True:
        with suppress(StageError):
            wanted, existing = await counts()
            metric = await demand()
            verdict = autoscaler.sync(metric=metric, spec_pods=wanted, status_pods=existing, now=clock())
            if verdict.pods != wanted:
                await scale(verdict.pods)
        await asyncio.sleep(scaling.sync_s)
