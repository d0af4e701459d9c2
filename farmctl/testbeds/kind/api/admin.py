"""The proxy's own word, read from its admin port, None while it gives none; and whether its door is open."""

import asyncio
from typing import Any

import aiohttp
from farmwire import metrics, paths

from farmctl.errors import StageError
from farmctl.testbeds import gauges, looking
from farmctl.testbeds.kind.api import doors

ASK = aiohttp.ClientTimeout(total=3)
POOL = "default"


class Admin:
    """``base`` and ``door`` are http://host:port. Each question takes a new connection: an old one may lead to an old
    proxy.
    """

    def __init__(self, base: str, door: str = "") -> None:
        self._base, self._door = base, door

    async def pool(self) -> dict[str, Any] | None:
        """The pool as /status shows it."""
        status = await looking.asked(self._base, ASK)
        found: dict[str, Any] | None = status["pools"].get(POOL) if status else None
        return found

    async def ready(self) -> bool:
        return await self._text(paths.READYZ) is not None

    async def opens(self) -> bool:
        """Whether a proxy answers at the door, whatever it says. The admin port is open before it, and is no witness:
        its Service leads to a proxy that is not ready too.
        """
        try:
            async with aiohttp.ClientSession(timeout=ASK) as session, session.get(self._door):
                return True
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def lends(self) -> bool:
        """Whether the door gives out a lease: only then proxy and pod have really reached each other."""
        try:
            return await asyncio.to_thread(doors.lease_once, self._door) == "leased"
        except StageError:
            return False

    async def demand(self) -> float | None:
        text = await self._text(paths.METRICS)
        return None if text is None else gauges.read(text, metrics.DEMAND, {"pool": POOL})

    async def _text(self, path: str) -> str | None:
        try:
            async with (
                aiohttp.ClientSession(timeout=ASK) as session,
                session.get(self._base + path) as answer,
            ):
                return await answer.text() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None


def all_free(pool: dict[str, Any] | None, pods: int) -> bool:
    """As many free pods as there are to be, nobody held, nothing leased."""
    if pool is None or pool["held"] or pool["leases"] or len(pool["pods"]) != pods:
        return False
    return all(each["state"] == "free" for each in pool["pods"])
