"""The agent's own CDP connection to one Chrome: is it alive at this moment, and has it frozen?

The rule: Chrome counts as frozen after MISSES_MAX intervals in a row that each really passed without an answer.
One interval that looks unanswered only because this whole pod stood still is not enough.
"""

import asyncio
from typing import Any, Protocol

from farmagent import cdp
from farmagent.errors import ChromeLostError

MISSES_MAX = 3
PROBE = "Browser.getVersion"


class Commands(Protocol):
    """What is used of cdp.Browser."""

    ended: asyncio.Event

    async def send(self, method: str, *, timeout_s: float | None) -> dict[str, Any]: ...


class Heartbeat:
    def __init__(self, browser: Commands, *, every_s: float) -> None:
        self._browser = browser
        self._every_s = every_s

    async def ask(self) -> None:
        """Return once Chrome has answered now. Raises ChromeLostError when it is gone or frozen."""
        for _ in range(MISSES_MAX):
            try:
                await self._browser.send(PROBE, timeout_s=self._every_s)
                return
            except cdp.CdpTimeout:
                continue
            except (cdp.CdpError, cdp.CdpLost) as error:
                raise ChromeLostError(str(error)) from error
        raise ChromeLostError(f"frozen: no answer {MISSES_MAX} times in a row, {self._every_s:g} s each")

    async def watch(self) -> None:
        """Ask for ever. Raises ChromeLostError at once when the connection ends, or when Chrome is frozen."""
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._browser.ended.wait()
                raise ChromeLostError("Chrome closed the agent's connection")
            except TimeoutError:
                await self.ask()
