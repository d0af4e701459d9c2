"""HTTP towards the door, with aiohttp's errors mapped once: not sent is DoorUnreachable, sent and cut off is JobLost.

A connection has a limit of its own, apart from the hold. While a cluster has not yet noticed that a proxy's pod is gone,
a caller's first packet goes to nobody, and the kernel sends it there again and again for two minutes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from farmctl.client.errors import DoorUnreachable, JobLost

HOLD_DEFAULT_S = 300.0  # the door's own default (FARMPROXY_HOLD_DEFAULT_S)
CONNECT_S = 10.0  # the packet and three repeats of it
PORTS = {"https": 443, "wss": 443}
ANSWER_MARGIN_S = 90.0  # beyond hold and job: handshake, preparing a pod, transfer


def limit(hold_s: float | None, job_s: float = 0.0) -> aiohttp.ClientTimeout:
    """Return a limit that the farm's own limits reach first."""
    return aiohttp.ClientTimeout(
        total=(HOLD_DEFAULT_S if hold_s is None else hold_s) + job_s + ANSWER_MARGIN_S,
        sock_connect=CONNECT_S,
    )


async def reach(door: str, *, buffer: int = 2**16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the door and say nothing yet. Raises DoorUnreachable."""
    parts = urlsplit(door if "://" in door else f"http://{door}")
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(
                parts.hostname, parts.port or PORTS.get(parts.scheme, 80), limit=buffer
            )
    except TimeoutError as error:
        raise DoorUnreachable(door, f"no connection within {CONNECT_S:g} s") from error
    except OSError as error:
        raise DoorUnreachable(door, error) from error


@asynccontextmanager
async def mapped(door: str) -> AsyncIterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
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
