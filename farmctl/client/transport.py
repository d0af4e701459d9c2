"""HTTP towards the door, with aiohttp's errors mapped once: not sent is DoorUnreachable, sent and cut off is JobLost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from farmctl.client.errors import DoorUnreachable, JobLost

HOLD_DEFAULT_S = 300.0  # the door's own default (FARMPROXY_HOLD_DEFAULT_S)
ANSWER_MARGIN_S = 90.0  # beyond hold and job: handshake, preparing a pod, transfer


def limit(hold_s: float | None, job_s: float = 0.0) -> aiohttp.ClientTimeout:
    """Return a limit that the farm's own limits reach first."""
    return aiohttp.ClientTimeout(
        total=(HOLD_DEFAULT_S if hold_s is None else hold_s) + job_s + ANSWER_MARGIN_S
    )


@asynccontextmanager
async def mapped(door: str) -> AsyncIterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise DoorUnreachable(door, error) from error
    except aiohttp.ClientError as error:
        raise JobLost(f"the answer broke off: {error}", reason="cut-off") from error
    except TimeoutError as error:
        raise JobLost("no answer within the limit", reason="silence") from error


@asynccontextmanager
async def shared_or_own(given: aiohttp.ClientSession | None) -> AsyncIterator[aiohttp.ClientSession]:
    if given is not None:
        yield given
        return
    async with aiohttp.ClientSession() as own:
        yield own
