"""The agent's own CDP connection to one Chrome: is it alive at this moment, and has it frozen?

The rule: a Chrome that is silent and does no work for MISSES_MAX intervals in a row is frozen; one that is silent
because it works (a huge message, a huge picture) is let be for BUSY_MAX_S. Each interval really passed without an
answer: one that only looks so because this whole pod stood still is not enough.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from farmagent.chrome import cdp
from farmagent.errors import ChromeLostError

MISSES_MAX = 3
BUSY_MAX_S = 60.0
BUSY_SHARE = 0.1  # of one core; an idle Chrome takes 0.02 at most
PROBE = "Browser.getVersion"


class Commands(Protocol):
    """What is used of cdp.Browser."""

    ended: asyncio.Event

    async def send(self, method: str, *, timeout_s: float | None) -> dict[str, Any]: ...


class Heartbeat:
    """``worked_s``: what Chrome has used so far, in CPU-seconds; None while it is stopped."""

    def __init__(self, browser: Commands, *, every_s: float, worked_s: Callable[[], float | None]) -> None:
        self._browser = browser
        self._every_s = every_s
        self._worked_s = worked_s

    async def ask(self) -> None:
        """Return once Chrome has answered now. Raises ChromeLostError when it is gone or frozen."""
        clock = asyncio.get_running_loop().time
        began, misses, before = clock(), 0, None
        while not await self.answers(self._every_s):
            worked = self._worked_s()
            if worked is not None and before is not None and worked - before >= BUSY_SHARE * self._every_s:
                misses = 0
            before, misses = worked, misses + 1
            if misses >= MISSES_MAX:
                raise ChromeLostError(f"frozen: no answer {misses} times in a row, {self._every_s:g} s each")
            if clock() - began >= BUSY_MAX_S:
                raise ChromeLostError(f"busy: no answer for {BUSY_MAX_S:g} s")

    async def answers(self, limit_s: float) -> bool:
        """Whether Chrome answers within the limit. Raises ChromeLostError when it is gone."""
        try:
            await self._browser.send(PROBE, timeout_s=limit_s)
        except cdp.CdpTimeout:
            return False
        except (cdp.CdpError, cdp.CdpLost) as error:
            raise ChromeLostError(str(error)) from error
        return True

    async def watch(self) -> None:
        """Ask for ever. Raises ChromeLostError at once when the connection ends, or when Chrome is frozen."""
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._browser.ended.wait()
                raise ChromeLostError("Chrome closed the agent's connection")
            except TimeoutError:
                await self.ask()
