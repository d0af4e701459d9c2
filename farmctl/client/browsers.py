"""A browser of one's own for the length of a block: connect, work, and the lease is over.

Within the block an error of Playwright that the pod's or the browser's death caused turns into JobLost; an
error that the page caused stays Playwright's own.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from farmwire.launch_options import LaunchOptions

from farmctl.client.endpoints import NO_OPTIONS, LeaseOptions, browser_url
from farmctl.client.errors import JobLost, from_playwright
from farmctl.client.transport import HOLD_DEFAULT_S, reach

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

# Beyond the hold: the handshake and Chrome's answer (30 s at most) and Playwright's own first commands.
CONNECT_MARGIN_S = 60.0
DISCONNECT_NEWS_S = 1.0  # how much later than a failed call the news of the lost connection may come


@asynccontextmanager
async def connect(
    door: str,
    *,
    token: str = "",
    pool: str = "",
    hold_s: float | None = None,
    max_s: float | None = None,
    label: str = "",
    launch: LaunchOptions = NO_OPTIONS,
    playwright: "Playwright | None" = None,
) -> "AsyncIterator[Browser]":
    """Yield Playwright's Browser over CDP on a leased pod; leaving the block ends the lease. ``launch`` has its Chrome
    started anew with a proxy, user agent, language, time zone, window or flags.

    ``playwright`` is a started driver to share; without one the block starts its own. Raises Refused,
    JobLost or DoorUnreachable; Playwright's timeout is set so that it covers the hold.
    """
    lease_options = LeaseOptions(
        token=token, pool=pool, hold_s=hold_s, max_s=max_s, label=label, launch=launch
    )
    if playwright is None:
        from playwright.async_api import async_playwright

        async with async_playwright() as own, _leased(own, door, lease_options) as browser:
            yield browser
    else:
        async with _leased(playwright, door, lease_options) as browser:
            yield browser


@asynccontextmanager
async def _leased(
    playwright: "Playwright", door: str, lease_options: LeaseOptions
) -> "AsyncIterator[Browser]":
    from playwright.async_api import Error

    browser = await _connect(playwright, door, lease_options)
    gone = asyncio.Event()
    browser.on("disconnected", lambda _browser: gone.set())
    try:
        yield browser
    except Error as error:
        if await _lost(browser, gone, error.message):
            raise JobLost(f"the browser was lost: {_first_line(error.message)}") from error
        raise
    finally:
        # A browser that is gone cannot be closed again; its end is told by the error that is on its way.
        with suppress(Error):
            await browser.close()


async def _connect(playwright: "Playwright", door: str, lease_options: LeaseOptions) -> "Browser":
    from playwright.async_api import Error

    hold_s = HOLD_DEFAULT_S if lease_options.hold_s is None else lease_options.hold_s
    url = browser_url(door, lease_options)
    # Playwright has one limit for connecting and for being held; this way the connecting keeps a short one.
    (await reach(door))[1].close()
    try:
        return await playwright.chromium.connect_over_cdp(
            url,
            headers=lease_options.headers() or None,
            timeout=(hold_s + CONNECT_MARGIN_S) * 1000,
        )
    except Error as error:
        known = from_playwright(door, error.message)
        if known is None:
            raise
        raise known from error


async def _lost(browser: "Browser", gone: asyncio.Event, message: str) -> bool:
    if not browser.is_connected():
        return True
    if "closed" not in message:
        return False
    # "Target closed" is also what a page says that the job itself closed: the connection decides.
    with suppress(TimeoutError):
        await asyncio.wait_for(gone.wait(), DISCONNECT_NEWS_S)
    return gone.is_set()


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]
