"""One render job from request to answer: check, open, navigate, wait, run the script, capture, close."""

import asyncio
import string
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

from farmwire import headers

from farmagent.chrome import cdp
from farmagent.chrome.cdp import MESSAGE_MAX_BYTES
from farmagent.render import gate, openings
from farmagent.render.answers import CONTENT_TYPES, Reason, RenderAnswer, RenderError, refusal
from farmagent.render.captures import capture
from farmagent.render.documents import Document
from farmagent.render.gate import Gate
from farmagent.render.names import Resolver
from farmagent.render.pages import Navigated, Page, ScriptError
from farmagent.render.requests import RenderRequest, parse
from farmagent.render.targets import TargetPolicy

CONNECT_TIMEOUT_S = 10.0
PAGE_URL_MAX_CHARS = 4096


async def render(
    chrome_ws_url: str, body: bytes, *, policy: TargetPolicy, resolver: Resolver | None = None
) -> RenderAnswer:
    """Render as ``body`` (JSON) asks, in the Chrome at ``chrome_ws_url`` (its browser socket).

    Never raises for what the caller or the page did; raises ``cdp.CdpLost`` when Chrome itself is gone, which
    is the end of the lease. Cancelling it closes the page.
    """
    try:
        return await _Job(parse(body, policy)).run(chrome_ws_url, policy, resolver)
    except RenderError as error:
        return refusal(error)
    except cdp.CdpLost as error:
        if error.too_big:
            return refusal(
                RenderError(Reason.TOO_LARGE, "the page's result is over the limit of one message")
            )
        raise


class _Job:
    def __init__(self, request: RenderRequest) -> None:
        self._request = request
        self._page: Page | None = None
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._timings: dict[str, float] = {}  # seconds since the job began, by the step that was done then

    async def run(self, chrome_ws_url: str, policy: TargetPolicy, resolver: Resolver | None) -> RenderAnswer:
        timeout_s = self._request.timeout_s
        try:
            async with asyncio.timeout(timeout_s), AsyncExitStack() as stack:
                browser = await stack.enter_async_context(
                    cdp.connect(chrome_ws_url, timeout_s=CONNECT_TIMEOUT_S, max_bytes=MESSAGE_MAX_BYTES)
                )
                guard = None
                if not policy.everything:
                    guard = await stack.enter_async_context(gate.opened(policy, resolver))
                page = await stack.enter_async_context(openings.opened(browser, self._request, guard))
                self._page = page
                return await self._work(page, guard)
        except TimeoutError as error:
            step = self._page.step if self._page else "opening a page"
            raise RenderError(Reason.NOT_SETTLED, f"not done within {timeout_s:g} s: {step}") from error

    async def _work(self, page: Page, guard: Gate | None) -> RenderAnswer:
        request = self._request
        self._mark("opened_s")
        await page.navigate(request.url)
        self._mark("committed_s")
        if page.document is not None:
            return _document(page.document, guard)
        await self._settle(page)
        self._mark("settled_s")
        result = await self._run_script(page) if request.script else None
        body = await self._capture(page, result)
        if page.document is not None:  # it went on to one
            return _document(page.document, guard)
        return _answer(request.format, page.progress.status, page.progress.url, guard, body)

    async def _settle(self, page: Page) -> None:
        await page.settle(self._request.wait_until)
        if self._request.wait_for:
            await page.wait_for(self._request.wait_for, self._request.wait_until)

    async def _capture(self, page: Page, result: Any) -> bytes:
        """What is taken from one settled document. One that another takes the place of meanwhile does not count."""
        while True:
            document = page.progress.documents
            try:
                body = await capture(page, self._request, result, self._timings)
                page.check()
                if page.progress.documents == document and not page.progress.leaving:
                    return body
            except Navigated:
                page.check()
            except (ScriptError, cdp.CdpError) as error:
                page.check()
                if page.progress.documents == document and not page.progress.leaving:
                    raise RenderError(Reason.PAGE_FAILED, f"the page cannot be read: {error}") from error
            if self._request.script:  # it has run in the document that it was for
                await page.settle(self._request.wait_until)
            else:
                await self._settle(page)

    async def _run_script(self, page: Page) -> Any:
        """The script's value (None if it went to another page), once what it set off has settled again."""
        page.step = "the script runs"
        result, after = None, 0
        try:
            result = await page.run(self._request.script, by_value=self._request.format == "json")
        except ScriptError as error:
            page.check()
            raise RenderError(Reason.SCRIPT_FAILED, str(error)) from error
        except Navigated as error:
            after = error.after
        await page.settle(self._request.wait_until, after=after)
        self._mark("script_s")
        return result

    def _mark(self, step: str) -> None:
        self._timings[step] = round(self._clock() - self._began, 3)


def _document(document: Document, guard: Gate | None) -> RenderAnswer:
    return _answer("pdf", document.status, document.url, guard, document.body)


def _answer(kind: str, status: int, url: str, guard: Gate | None, body: bytes) -> RenderAnswer:
    """The rule: what a page can make long is cut, or clients refuse the whole answer for its head (Node over 16 KiB)."""
    text = quote(url, safe=string.punctuation)  # already so, but for what a page makes of its own fragment
    found = [
        ("Content-Type", CONTENT_TYPES[kind]),
        ("Cache-Control", "no-store"),
        (headers.PAGE_STATUS, str(status)),
        (headers.PAGE_URL, text[:PAGE_URL_MAX_CHARS]),
    ]
    if len(text) > PAGE_URL_MAX_CHARS:
        found.append((headers.PAGE_URL_CHARS, str(len(text))))
    if guard is not None and guard.refused:
        found.append((headers.PAGE_REFUSED, str(len(guard.refused))))
    return RenderAnswer(200, tuple(found), body)
