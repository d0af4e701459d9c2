"""Opening and closing a job's page: the context it lives in, and the task that attends to it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from farmagent.chrome import cdp
from farmagent.render.gate import Gate
from farmagent.render.pages import Page
from farmagent.render.preparations import blocked
from farmagent.render.requests import RenderRequest

CLOSE_TIMEOUT_S = 1.0


@asynccontextmanager
async def opened(
    browser: cdp.Browser, request: RenderRequest, gate: Gate | None
) -> AsyncGenerator[Page, None]:
    """A prepared, empty page: in a context of its own behind the gate, or in Chrome's default context."""
    scope: dict[str, Any] = {}
    if gate is not None:
        # "<-loopback>" takes away Chrome's rule that loopback needs no proxy.
        proxy = {"proxyServer": f"socks5://127.0.0.1:{gate.port}", "proxyBypassList": "<-loopback>"}
        context = await browser.send(
            "Target.createBrowserContext", {"disposeOnDetach": True, **proxy}, timeout_s=None
        )
        scope["browserContextId"] = context["browserContextId"]
    if request.block:
        # On the browser's own session it holds for every frame and worker made from now on.
        await browser.send("Fetch.enable", {"patterns": blocked(request)}, timeout_s=None)
    await browser.post("Browser.setDownloadBehavior", {"behavior": "deny", **scope})
    target = await browser.send("Target.createTarget", {"url": "about:blank", **scope}, timeout_s=None)
    target_id = str(target["targetId"])
    page = Page(browser, await browser.attach(target_id, timeout_s=None), target_id, gate)
    with browser.listening(page.fold), browser.events() as events:
        attending = asyncio.get_running_loop().create_task(page.attend(events, request), name="render-page")
        try:
            await page.prepare(request)
            yield page
        finally:
            attending.cancel()
            await asyncio.wait({attending})
            with suppress(cdp.CdpError, cdp.CdpLost, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    # Nobody waits for the closing: Chrome takes it in before the connection's end.
                    await browser.post("Target.closeTarget", {"targetId": target_id})
