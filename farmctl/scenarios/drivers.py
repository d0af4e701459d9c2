"""The one Playwright driver process that all Playwright callers of a run share; started on first use."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from playwright.async_api import Playwright


class Driver:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from playwright.async_api import Error

        if self._playwright is not None:
            # Ctrl-C reaches the driver's process too: one that is gone needs no stopping.
            with suppress(Error, ConnectionError):
                await self._playwright.stop()

    async def started(self) -> "Playwright":
        async with self._lock:
            if self._playwright is None:
                from playwright.async_api import async_playwright

                self._playwright = await async_playwright().start()
            return self._playwright
