"""One page of one job, driven over CDP: prepared, navigated, waited for, asked.

The rule: every wait ends when the page crashes or Chrome is lost; time is bounded by the job around it. What
the page opens by itself (dialogs, frames, workers) is attended to so that nothing blocks. Only the caller's script
runs among the page's own objects; everything else is asked in an isolated world, which sees the same document with
JavaScript's and the DOM's own functions, whatever the page has made of them.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from farmagent.chrome import cdp
from farmagent.logs import log
from farmagent.render import cookies, documents
from farmagent.render.answers import Reason, RenderError
from farmagent.render.gate import REFUSED, Gate
from farmagent.render.preparations import common, preparations
from farmagent.render.progress import Progress
from farmagent.render.requests import RenderRequest
from farmagent.render.targets import SCHEMES, split_url

DETAIL_MAX_CHARS = 4000  # of a script's exception with its stack
# What Page.evaluate meets when the document is replaced under it; Chrome has no code for it.
_NAVIGATED = ("context was destroyed", "navigated or closed", "context with specified id", "was collected")
_NOT_YET = ("Cannot find", "No frame")  # a new document whose context is not made yet
# Timers and tasks that were due at the load event come before it, and what they do to the page is told before. A
# page without scripting (a sandbox by its policy) has no timers, and would never answer.
_BREATH = "matchMedia('(scripting: enabled)').matches ? new Promise((resolve) => setTimeout(resolve, 0)) : 0"
_FOLDED = frozenset(
    {
        "Network.requestWillBeSent", "Network.responseReceived", "Network.loadingFinished",
        "Network.loadingFailed", "Page.frameNavigated", "Page.navigatedWithinDocument",
        "Page.domContentEventFired", "Page.loadEventFired", "Inspector.targetCrashed",
        "Page.frameScheduledNavigation", "Page.frameClearedScheduledNavigation",
        "Page.frameStartedNavigating", "Page.frameStoppedLoading",
    }
)  # fmt: skip


class Navigated(Exception):
    """The document was replaced while a command ran in it; run it again in a document after number ``after``."""

    def __init__(self, after: int) -> None:
        super().__init__("the document was replaced")
        self.after = after


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
        self._target_id = target_id
        self._world = (-1, 0)  # number of a document, and the id of the isolated world in it
        self._changed = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self.progress = Progress(target_id, self._clock())
        self.document: documents.Document | None = None  # in place of a page: the URL is a PDF
        self._too_large: RenderError | None = None
        self._takes_pdf = False
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
                try:
                    await self._attend_to(event, request)
                except (cdp.CdpError, RenderError, LookupError, TypeError, ValueError):
                    log.exception("render-event", method=event.method)
        self._changed.set()

    async def _attend_to(self, event: cdp.Event, request: RenderRequest) -> None:
        post, session_id = self._browser.post, event.session_id
        if event.method == "Page.javascriptDialogOpening":
            leaving = event.params.get("type") == "beforeunload"
            await post("Page.handleJavaScriptDialog", {"accept": leaving}, session_id=session_id)
        elif event.method == "Fetch.requestPaused" and session_id == self._session_id:
            await self._look_at_answer(event.params)
        elif event.method == "Fetch.requestPaused":
            answer = {"requestId": event.params["requestId"], "errorReason": "BlockedByClient"}
            await post("Fetch.failRequest", answer, session_id=session_id)
        elif event.method == "Target.attachedToTarget" and session_id:
            child = str(event.params["sessionId"])
            for method, params in common(request):
                await post(method, params, session_id=child)
            await post("Runtime.runIfWaitingForDebugger", session_id=child)

    async def _look_at_answer(self, paused: Mapping[str, Any]) -> None:
        """For format pdf: take an answer that is one in place of a page of Chrome's viewer."""
        request = {"requestId": paused["requestId"]}
        if paused["frameId"] != self._target_id or not documents.is_pdf(paused):
            await self._browser.post("Fetch.continueResponse", request, session_id=self._session_id)
            return
        try:
            self.document = await documents.take(self.send, paused)
        except RenderError as error:
            self._too_large = error
        await self._browser.post(
            "Fetch.failRequest", {**request, "errorReason": "Aborted"}, session_id=self._session_id
        )

    async def prepare(self, request: RenderRequest) -> None:
        """Set the page up, all commands in one go; Chrome takes a session's commands in order."""
        self._takes_pdf = request.format == "pdf"
        try:
            await asyncio.gather(*(self.send(method, params) for method, params in preparations(request)))
        except cdp.CdpError as error:
            raise RenderError(Reason.BAD_REQUEST, f"Chrome refuses the page's settings: {error}") from error
        if request.cookies:
            await cookies.give(self.send, request.cookies, request.url)

    async def navigate(self, url: str) -> None:
        """Go to ``url`` and wait until its document is there. RenderError: 403, 422."""
        self.step = "the server has not answered"
        try:
            answer = await self.send("Page.navigate", {"url": url})
        except cdp.CdpError as error:
            raise RenderError(Reason.PAGE_FAILED, f"{error.message} at {url}") from error
        self.check()
        if self.document is not None:
            return
        if answer.get("isDownload"):
            raise RenderError(Reason.PAGE_FAILED, f"net::ERR_ABORTED: the answer of {url} is a download")
        if word := str(answer.get("errorText", "")):
            raise self._failure(word, self.progress.asked_url or url)

    async def settle(self, wait_until: str, *, after: int = 0) -> None:
        """Wait until the newest document, one after number ``after``, has come as far as asked and stays."""
        while True:
            self.check()
            left_s = None
            going = " the page goes to another;" if self.progress.leaving else ""
            if self._arrived(wait_until, after):
                left_s = self.progress.idle_in_s(self._clock()) if wait_until == "networkidle" else 0.0
                if left_s == 0.0:
                    if await self._stays(wait_until, after):
                        return
                    continue
            self.step = f"waiting for {wait_until};{going} {self.progress.in_flight()} requests in flight"
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    def _arrived(self, wait_until: str, after: int) -> bool:
        progress = self.progress
        return progress.documents > after and not progress.leaving and progress.reached(wait_until)

    async def _stays(self, wait_until: str, after: int) -> bool:
        """Whether the document is still the one to take after what it does at load has been done."""
        try:
            await self.ask(_BREATH)
        except Navigated:
            return False
        return self._arrived(wait_until, after)

    async def run(self, script: str, *, by_value: bool) -> Any:
        """Run the caller's JavaScript among the page's own and wait for its promise. Raises ScriptError, Navigated."""
        return await self._evaluate(script, {"returnByValue": by_value, "userGesture": True})

    async def ask(self, expression: str) -> Any:
        """The value of an expression (or of its promise) in the isolated world. Raises ScriptError, Navigated."""
        document, world = self._world
        if document != self.progress.documents:
            document = self.progress.documents
            # Without a name: DevTools gives one world of a name to all of a page's clients.
            world = (await self._in_page("Page.createIsolatedWorld", {"frameId": self._target_id}))[
                "executionContextId"
            ]
            self._world = (document, world)
        return await self._evaluate(expression, {"returnByValue": True, "contextId": world})

    async def _evaluate(self, expression: str, params: Mapping[str, Any]) -> Any:
        answer = await self._in_page(
            "Runtime.evaluate", {"expression": expression, "awaitPromise": True, **params}
        )
        if details := answer.get("exceptionDetails"):
            raise ScriptError(details)
        result = answer["result"]
        return result.get("value", result.get("unserializableValue"))

    async def _in_page(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        document = self.progress.documents
        try:
            return await self.send(method, params)
        except cdp.CdpError as error:
            self._world = (-1, 0)
            if any(words in error.message for words in _NAVIGATED):
                # The news of the new document may come after this answer.
                raise Navigated(document) from error
            if any(words in error.message for words in _NOT_YET):
                raise Navigated(0) from error
            raise ScriptError({"text": error.message}) from error

    async def wait_for(self, selector: str, wait_until: str) -> None:
        """Wait until an element that matches is in the document (not that it is visible)."""
        expression = _WAIT_FOR % json.dumps(selector)
        while True:
            self.step = f"no element matches {selector}"
            try:
                await self.ask(expression)
            except Navigated as error:
                await self.settle(wait_until, after=error.after)
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
        if self._too_large is not None:
            raise self._too_large
        if self.progress.mime == documents.PDF and not self._takes_pdf:
            detail = "is a PDF; ask for format pdf to have the document itself"
            raise RenderError(Reason.PAGE_FAILED, f"{self.progress.asked_url} {detail}")
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
