"""One page of one job, driven over CDP: opened, prepared, navigated, waited for, closed.

The rule: every wait ends when the page crashes or Chrome is lost; time is bounded by the job around it. What
the page opens by itself (dialogs, frames, workers) is attended to so that nothing blocks.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from farmagent import cdp
from farmagent.render.answers import Reason, RenderError
from farmagent.render.gate import REFUSED, Gate
from farmagent.render.progress import Progress
from farmagent.render.requests import RenderRequest
from farmagent.render.targets import SCHEMES, split_url

DETAIL_MAX_CHARS = 4000  # of a script's exception with its stack
CLOSE_TIMEOUT_S = 1.0
# What Page.evaluate meets when the document is replaced under it; Chrome has no code for it.
_NAVIGATED = ("context was destroyed", "navigated or closed", "Cannot find context", "Promise was collected")
_FOLDED = frozenset(
    {
        "Network.requestWillBeSent", "Network.responseReceived", "Network.loadingFinished",
        "Network.loadingFailed", "Page.frameNavigated", "Page.navigatedWithinDocument",
        "Page.domContentEventFired", "Page.loadEventFired", "Inspector.targetCrashed",
    }
)  # fmt: skip


class Navigated(Exception):
    """The document was replaced while a command ran in it; run it again in the new one."""


class ScriptError(Exception):
    """JavaScript threw. ``name`` is the exception's class; the message has its stack."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        thrown = details.get("exception", {})
        text = thrown.get("description") or thrown.get("value") or details.get("text", "")
        super().__init__(str(text)[:DETAIL_MAX_CHARS])
        self.name = str(thrown.get("className", ""))


class Page:
    """``step`` says what the job waits for, in words for a 504's detail."""

    def __init__(self, browser: cdp.Browser, session_id: str, target_id: str, gate: Gate | None) -> None:
        self._browser = browser
        self._session_id = session_id
        self._gate = gate
        self._changed = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self.progress = Progress(target_id, self._clock())
        self.step = "preparing the page"

    async def send(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            return await self._browser.send(method, params, session_id=self._session_id, timeout_s=None)
        except cdp.CdpTargetLost as error:
            raise RenderError(Reason.PAGE_CRASHED, "the page crashed") from error

    def fold(self, event: cdp.Event) -> None:
        """Take an event in, at once and in order (so that a command's answer finds it already folded)."""
        if event.method in _FOLDED:
            self.progress.take(
                event.method,
                event.params,
                session_id=event.session_id,
                own=event.session_id == self._session_id,
                now=self._clock(),
            )
        elif event.method == "Target.detachedFromTarget":
            self.progress.forget_session(str(event.params["sessionId"]), self._clock())
        else:
            return
        self._changed.set()

    async def attend(self, events: cdp.Events, request: RenderRequest) -> None:
        """Answer what would otherwise block the page, as long as Chrome is there."""
        with suppress(cdp.CdpLost):
            async for event in events:
                await self._attend_to(event, request)
        self._changed.set()

    async def _attend_to(self, event: cdp.Event, request: RenderRequest) -> None:
        post, session_id = self._browser.post, event.session_id
        if event.method == "Page.javascriptDialogOpening":
            leaving = event.params.get("type") == "beforeunload"
            await post("Page.handleJavaScriptDialog", {"accept": leaving}, session_id=session_id)
        elif event.method == "Fetch.requestPaused":
            answer = {"requestId": event.params["requestId"], "errorReason": "BlockedByClient"}
            await post("Fetch.failRequest", answer, session_id=session_id)
        elif event.method == "Target.attachedToTarget" and session_id:
            child = str(event.params["sessionId"])
            for method, params in _common(request):
                await post(method, params, session_id=child)
            await post("Runtime.runIfWaitingForDebugger", session_id=child)

    async def prepare(self, request: RenderRequest) -> None:
        """Set the page up, all commands in one go; Chrome takes a session's commands in order."""
        view = request.viewport
        metrics = {
            "width": view.width,
            "height": view.height,
            "deviceScaleFactor": view.scale,
            "mobile": False,
        }
        commands: list[tuple[str, Mapping[str, Any]]] = [
            ("Page.enable", {}),
            *_common(request),
            ("Emulation.setDeviceMetricsOverride", metrics),
            ("Emulation.setScrollbarsHidden", {"hidden": True}),
        ]
        if request.cookies:
            commands.append(("Network.setCookies", {"cookies": _cookies(request)}))
        try:
            await asyncio.gather(*(self.send(method, params) for method, params in commands))
        except cdp.CdpError as error:
            raise RenderError(Reason.BAD_REQUEST, f"Chrome refuses the page's settings: {error}") from error

    async def navigate(self, url: str) -> None:
        """Go to ``url`` and wait until its document is there. RenderError: 403, 422."""
        self.step = "the server has not answered"
        try:
            answer = await self.send("Page.navigate", {"url": url})
        except cdp.CdpError as error:
            raise RenderError(Reason.PAGE_FAILED, f"{error.message} at {url}") from error
        if answer.get("isDownload"):
            raise RenderError(Reason.PAGE_FAILED, f"net::ERR_ABORTED: the answer of {url} is a download")
        if word := str(answer.get("errorText", "")):
            raise self._failure(word, self.progress.asked_url or url)

    async def settle(self, wait_until: str) -> None:
        """Wait until the newest document has come as far as asked."""
        while True:
            self.check()
            left_s = None
            if self.progress.reached(wait_until):
                left_s = self.progress.idle_in_s(self._clock()) if wait_until == "networkidle" else 0.0
                if left_s == 0.0:
                    return
            self.step = f"waiting for {wait_until}; {self.progress.in_flight()} requests in flight"
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    async def evaluate(self, expression: str, *, by_value: bool = True, wait: bool = False) -> Any:
        """Run JavaScript in the page. Raises ScriptError, Navigated."""
        params = {
            "expression": expression,
            "returnByValue": by_value,
            "awaitPromise": wait,
            "userGesture": True,
        }
        try:
            answer = await self.send("Runtime.evaluate", params)
        except cdp.CdpError as error:
            if any(words in error.message for words in _NAVIGATED):
                raise Navigated from error
            raise ScriptError({"text": error.message}) from error
        if details := answer.get("exceptionDetails"):
            raise ScriptError(details)
        result = answer["result"]
        return result.get("value", result.get("unserializableValue"))

    async def wait_for(self, selector: str, wait_until: str) -> None:
        """Wait until an element that matches is in the document (not that it is visible)."""
        expression = _WAIT_FOR % json.dumps(selector)
        while True:
            self.step = f"no element matches {selector}"
            try:
                await self.evaluate(expression, wait=True)
            except Navigated:
                await self.settle(wait_until)
            except ScriptError as error:
                raise RenderError(Reason.BAD_REQUEST, f"{error} - at `$.wait_for`") from error
            else:
                return

    def check(self) -> None:
        """Raise if there is no page to go on with: Chrome lost, crashed, Chrome's error page, a foreign scheme."""
        self._browser.check()
        if self.progress.crashed:
            raise RenderError(Reason.PAGE_CRASHED, "the page crashed")
        if self.progress.unreachable_url:
            raise self._failure(self.progress.error_text, self.progress.unreachable_url)
        scheme = self.progress.url.partition(":")[0]
        if scheme and scheme not in SCHEMES | {"about", "blob"}:
            raise RenderError(
                Reason.REFUSED_TARGET, f"the page went to {scheme}:, only http and https are rendered"
            )

    def _failure(self, word: str, url: str) -> RenderError:
        known = ""
        if self._gate is not None and "SOCKS" in word:
            parts = split_url(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            known = self._gate.failure(parts.hostname or "", port)
        if known == REFUSED:
            return RenderError(
                Reason.REFUSED_TARGET, f"{url} is at an address that this farm does not render"
            )
        status = f" (HTTP status {self.progress.status})" if self.progress.status >= 400 else ""
        return RenderError(Reason.PAGE_FAILED, f"{known or word or 'net::ERR_FAILED'} at {url}{status}")


_WAIT_FOR = """new Promise((resolve) => {
  const selector = %s;
  if (document.querySelector(selector)) { resolve(true); return; }
  new MutationObserver((_, observer) => {
    if (document.querySelector(selector)) { observer.disconnect(); resolve(true); }
  }).observe(document, {subtree: true, childList: true, attributes: true});
})"""


def _common(request: RenderRequest) -> list[tuple[str, Mapping[str, Any]]]:
    """What the page and each of its frames and workers need; a target that lacks a domain ignores it."""
    # No bodies are kept: the job reads none, and they would double the page's memory.
    commands: list[tuple[str, Mapping[str, Any]]] = [
        ("Network.enable", {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})
    ]
    if request.headers:
        commands.append(("Network.setExtraHTTPHeaders", {"headers": request.headers}))
    if request.user_agent:
        commands.append(("Emulation.setUserAgentOverride", {"userAgent": request.user_agent}))
    if request.headers or request.user_agent or request.wait_until == "networkidle":
        # Frames of other sites and workers are targets of their own: without this they would send other
        # headers than the page, and their requests would not count as in flight.
        attach = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
        commands.append(("Target.setAutoAttach", attach))
    return commands


def _cookies(request: RenderRequest) -> list[dict[str, Any]]:
    cookies = []
    for cookie in request.cookies:
        fields = {
            name: value
            for name in ("name", "value", "url", "domain", "path", "httpOnly", "secure", "sameSite")
            if (value := getattr(cookie, name)) or name == "value"
        }
        if cookie.expires >= 0:
            fields["expires"] = cookie.expires
        if not (cookie.url or cookie.domain):
            fields["url"] = request.url
        cookies.append(fields)
    return cookies


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
        patterns = [{"resourceType": _RESOURCE_TYPES.get(word, word.capitalize())} for word in request.block]
        await browser.send("Fetch.enable", {"patterns": patterns}, timeout_s=None)
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
            with suppress(cdp.CdpError, cdp.CdpLost, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    # Nobody waits for the closing: Chrome takes it in before the connection's end.
                    await browser.post("Target.closeTarget", {"targetId": target_id})


_RESOURCE_TYPES = {"xhr": "XHR", "texttrack": "TextTrack", "eventsource": "EventSource"}
