"""Keeps one proxy running: starts it, starts it again when it ends, and asks its admin port what it says.

A proxy that was told to end is replaced at once; one that ends by itself is replaced after a growing delay.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import aiohttp
from farmwire import metrics, paths

from farmctl.errors import StageError
from farmctl.testbeds import gauges
from farmctl.testbeds.local.control_plane.probes import Backoff
from farmctl.testbeds.local.control_plane.watches import Bell
from farmctl.testbeds.local.processes.children import Child

READY_LIMIT_S = 30.0
ASK_LIMIT = aiohttp.ClientTimeout(total=2.0)


class ProxyKeeper:
    def __init__(
        self,
        start: Callable[[Mapping[str, str]], Awaitable[Child]],
        *,
        admin: str,
        session: aiohttp.ClientSession,
        say: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self._start, self._session, self._say = start, session, say
        self._admin = f"http://{admin}"
        self._child: Child | None = None
        self._told = False
        self._bell = Bell()
        self.env: dict[str, str] = {}
        self.restarts = 0  # by itself, unasked
        self.starts = 0

    async def run(self) -> None:
        backoff = Backoff()
        clock = asyncio.get_running_loop().time
        try:
            while True:
                self._told = False
                began = clock()
                code = await self._once()
                if self._told:
                    continue
                self.restarts += 1
                delay_s = backoff.after_exit(clock() - began)
                self._say("proxy-died", {"code": code, "restart_in_s": delay_s})
                await self._bell.wait(delay_s)
        finally:
            if self._child is not None:
                await self._child.kill()

    async def _once(self) -> int:
        try:
            self._child = await self._start(self.env)
        except OSError as error:
            self._say("proxy-not-started", {"error": str(error)})
            return -1
        self.starts += 1
        self._bell.ring()
        return await self._child.wait()

    async def restart(self, how: Literal["kill", "term"], *, wait: bool) -> None:
        """End the proxy; without ``wait`` a terminated one may still be draining when this returns."""
        before, child = self.starts, self._child
        self._told = True
        if child is None or child.exit_code is not None:
            self._bell.ring()  # between two starts: no reason to wait longer
        elif how == "kill":
            await child.kill()
        else:
            child.terminate()
            if wait:
                await child.wait()
        if wait:
            await self.until_ready(after=before)

    async def until_ready(self, *, after: int = 0) -> None:
        """Raises StageError when start number ``after`` + 1 is not ready in time."""
        try:
            async with asyncio.timeout(READY_LIMIT_S):
                while self.starts <= after or not await self.ready():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise StageError("the proxy does not become ready", hint="farmctl logs proxy") from None

    @property
    def pid(self) -> int | None:
        return None if self._child is None or self._child.exit_code is not None else self._child.pid

    async def ready(self) -> bool:
        return self.pid is not None and await self._get("/readyz") is not None

    async def status(self) -> dict[str, Any] | None:
        """The admin port's /status; None while it does not answer."""
        text = await self._get(paths.STATUS)
        try:
            status: dict[str, Any] | None = None if text is None else json.loads(text)
        except ValueError:
            return None
        return status

    async def demand(self, pool: str) -> float | None:
        text = await self._get(paths.METRICS)
        return None if text is None else gauges.read(text, metrics.DEMAND, {"pool": pool})

    async def _get(self, path: str) -> str | None:
        try:
            async with self._session.get(self._admin + path, timeout=ASK_LIMIT) as answer:
                if answer.status != 200:
                    return None
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
