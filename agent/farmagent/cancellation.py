"""Run work only for as long as nothing that ends it has happened."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class OverError(Exception):
    """One of the events came before the work was done; the work was cancelled."""


async def unless(work: Coroutine[Any, Any, T], *events: asyncio.Event) -> T:
    """The work's result, or its own error; OverError as soon as one of the events is set (set already counts)."""
    if any(event.is_set() for event in events):
        work.close()
        raise OverError
    try:
        async with asyncio.TaskGroup() as group:
            watchers = [group.create_task(_raise_at(event)) for event in events]
            result = await work
            for watcher in watchers:
                watcher.cancel()
    except BaseExceptionGroup as errors:
        # the first cause counts; an OverError beside a real error is only its echo
        real = next((error for error in errors.exceptions if not isinstance(error, OverError)), None)
        raise real or OverError from None
    return result


async def first(*events: asyncio.Event) -> None:
    """Return once any of the events is set."""
    try:
        await unless(_for_ever(), *events)
    except OverError:
        return


async def within(awaitable: Awaitable[Any], limit_s: float) -> bool:
    """False when it took longer (and was cancelled)."""
    try:
        async with asyncio.timeout(limit_s):
            await awaitable
    except TimeoutError:
        return False
    return True


async def _raise_at(event: asyncio.Event) -> None:
    await event.wait()
    raise OverError


async def _for_ever() -> None:
    await asyncio.Event().wait()
