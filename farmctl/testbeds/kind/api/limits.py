"""Waits for a state of the cluster, with a limit and a message; an API server that is away is no state."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.api.objects import ApiAway

T = TypeVar("T")
PAUSE_S = 0.2


async def until(holds: Callable[[], Awaitable[object]], message: str, limit_s: float) -> None:
    """Ask until it holds. Raises NotStaged with ``message`` when the time is up."""
    try:
        async with asyncio.timeout(limit_s):
            while not await _asked(holds):
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        raise NotStaged(f"not within {limit_s:g} s: {message}") from None


async def _asked(holds: Callable[[], Awaitable[object]]) -> bool:
    try:
        return bool(await holds())
    except ApiAway:
        return False


async def again(step: Callable[[], Awaitable[T]], limit_s: float) -> T:
    """Do ``step``, which may be done any number of times, until it comes off. Raises its last StageError when the time
    is up: on a starved machine the way into a node fails for reasons that are over in a second.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return await step()
        except StageError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(PAUSE_S)
