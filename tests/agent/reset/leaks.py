"""The written list of what must not survive a lease: how a caller leaves it, and how the next one would find it.

A leak's ``leave`` returns a mark (or None); ``look`` gets that mark back and says whether it is there. Each look
is also made by the caller who left it, where it must find it: so no entry can pass by being blind.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from farmagent.chrome import cdp

LOOK_S = 5.0  # a thing that is there shows itself within this; see Visitor.until
WAIT_S = 60.0  # for what must come: the machine may be busy
BLOCKED = "Chrome's own page is blocked"
FILES_GONE_S = 5.0
HSTS_HOST = "hsts.test"  # Chrome takes no HSTS for localhost
TITLE = "left-by-the-first-caller"


class Visitor:
    """One caller in its lease: Chrome's default context, one page at the harness's own origin."""

    def __init__(self, browser: cdp.Browser, origin: str, server: Any) -> None:
        self.browser = browser
        self.origin = origin
        self.server = server
        self.pages: dict[str, str] = {}  # target to session

    async def targets(self) -> list[dict[str, Any]]:
        return (await self.browser.send("Target.getTargets"))["targetInfos"]

    async def page(self, url: str = "", *, new: bool = False) -> str:
        """A session on an open page of the origin (whoever opened it), else on a new one."""
        found = [
            one
            for one in await self.targets()
            if one["type"] == "page" and one["url"].startswith(self.origin)
        ]
        if found and not new and not url:
            target = found[0]["targetId"]
        else:
            made = await self.browser.send("Target.createTarget", {"url": "about:blank"})
            target = made["targetId"]
        if target not in self.pages:
            self.pages[target] = await self.browser.attach(target)
        if url or not found or new:
            await self.go(self.pages[target], url or f"{self.origin}/page")
        return self.pages[target]

    async def go(self, session: str, url: str) -> str:
        """Chrome's error text, empty when the page is there."""
        await self.browser.send("Page.enable", session_id=session)
        with self.browser.events(session) as events:
            answer = await self.browser.send("Page.navigate", {"url": url}, session_id=session)
            if answer.get("errorText"):
                return str(answer["errorText"])
            while (await events.next(timeout_s=WAIT_S)).method != "Page.loadEventFired":
                pass
        return ""

    async def run(self, expression: str, session: str = "") -> Any:
        """The value of JavaScript in a page of the origin."""
        session = session or await self.page()
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = await self.browser.send("Runtime.evaluate", params, session_id=session)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, session: str, limit_s: float = WAIT_S) -> bool:
        """Whether the expression turns true within a limit: pages of Chrome's own fill in late."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if await self.run(expression, session):
                return True
            await asyncio.sleep(0.05)
        return False

    async def close(self, session: str) -> None:
        target = next(target for target, one in self.pages.items() if one == session)
        del self.pages[target]
        await self.browser.send("Target.closeTarget", {"targetId": target})


Step = Callable[[Visitor], Awaitable[Any]]
Look = Callable[[Visitor, Any], Awaitable[bool]]


@dataclass(frozen=True)
class Leak:
    name: str
    leave: Step
    look: Look


def script(leave: str, look: str) -> tuple[Step, Look]:
    async def left(visitor: Visitor) -> Any:
        return await visitor.run(leave)

    async def looked(visitor: Visitor, _mark: Any) -> bool:
        return bool(await visitor.run(look))

    return left, looked


# over CDP


async def _set_http_only_cookie(visitor: Visitor) -> None:
    await visitor.page(f"{visitor.origin}/set-cookie")


async def _has_http_only_cookie(visitor: Visitor, _mark: Any) -> bool:
    cookies = (await visitor.browser.send("Storage.getCookies"))["cookies"]
    return any(cookie["name"] == "hidden" for cookie in cookies)


async def _fetch_cached(visitor: Visitor) -> str:
    return str(await visitor.run("fetch('/cached').then(answer => answer.text())"))


async def _is_cached(visitor: Visitor, mark: Any) -> bool:
    return await _fetch_cached(visitor) == mark


async def _sign_in(visitor: Visitor) -> None:
    session = await visitor.page(new=True)
    assert not await visitor.go(session, visitor.origin.replace("//", "//user:secret@") + "/basic")


async def _is_signed_in(visitor: Visitor, _mark: Any) -> bool:
    # Without credentials Chrome asks the person in front of it, who is not there.
    ask = "fetch('/basic', {signal: AbortSignal.timeout(2000)})"
    return bool(await visitor.run(f"{ask}.then(answer => answer.status === 200, () => false)"))


async def _open_tabs(visitor: Visitor) -> None:
    for _ in range(3):
        await visitor.page(f"{visitor.origin}/tab", new=True)


async def _has_tabs(visitor: Visitor, _mark: Any) -> bool:
    return any(one["url"].endswith("/tab") for one in await visitor.targets())


async def _visit(visitor: Visitor) -> None:
    session = await visitor.page(f"{visitor.origin}/page?title={TITLE}", new=True)
    assert await visitor.run("document.title", session) == TITLE


_DEEP_TEXT = """(function text(node) {
  return node.nodeType === 3 ? node.data
    : [...(node.shadowRoot ? [node.shadowRoot] : []), ...node.childNodes].map(text).join(' ');
})(document)"""


async def _chrome_page(visitor: Visitor, url: str) -> str:
    """A managed policy may block Chrome's own pages: then there is nothing to leave, and the test says so."""
    session = await visitor.page(new=True)
    error = await visitor.go(session, url)
    assert not error, f"{BLOCKED}: {error}"
    return session


async def _is_in_history(visitor: Visitor, _mark: Any) -> bool:
    session = await _chrome_page(visitor, "chrome://history/")
    limit_s = WAIT_S if visitor.server.leases == 1 else LOOK_S
    found = await visitor.until(f"({_DEEP_TEXT}).includes('{TITLE}')", session, limit_s)
    await visitor.close(session)
    return found


async def _grant(visitor: Visitor) -> None:
    permissions = {"permissions": ["geolocation", "notifications"], "origin": visitor.origin}
    await visitor.browser.send("Browser.grantPermissions", permissions)


async def _is_granted(visitor: Visitor, _mark: Any) -> bool:
    ask = "navigator.permissions.query({name: 'geolocation'}).then(answer => answer.state === 'granted')"
    return bool(await visitor.run(ask))


async def _in_settings(visitor: Visitor, expression: str) -> Any:
    session = await _chrome_page(visitor, "chrome://settings/")
    assert await visitor.until("typeof chrome.settingsPrivate === 'object'", session)
    value = await visitor.run(expression, session)
    await visitor.close(session)
    return value


def _pref(name: str, value: Any) -> tuple[Step, Look]:
    async def left(visitor: Visitor) -> None:
        words = f"chrome.settingsPrivate.setPref({json.dumps(name)}, {json.dumps(value)})"
        assert await _in_settings(visitor, words)

    async def looked(visitor: Visitor, _mark: Any) -> bool:
        words = f"chrome.settingsPrivate.getPref({json.dumps(name)}).then(pref => JSON.stringify(pref.value))"
        now = json.loads(await _in_settings(visitor, words))
        wanted = value.items() if isinstance(value, dict) else ()
        return all(now.get(key) == one for key, one in wanted) if isinstance(value, dict) else now == value

    return left, looked


async def _emulate(visitor: Visitor) -> None:
    session = await visitor.page()
    await visitor.browser.send(
        "Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"}, session_id=session
    )
    await visitor.browser.send(
        "Emulation.setUserAgentOverride", {"userAgent": "First/1.0"}, session_id=session
    )


async def _is_emulated(visitor: Visitor, _mark: Any) -> bool:
    zone = "Intl.DateTimeFormat().resolvedOptions().timeZone"
    return bool(await visitor.run(f"{zone} === 'Asia/Tokyo' || navigator.userAgent === 'First/1.0'"))


async def _new_window_bounds(visitor: Visitor) -> tuple[str, dict[str, Any]]:
    made = await visitor.browser.send("Target.createTarget", {"url": "about:blank", "newWindow": True})
    found = await visitor.browser.send("Browser.getWindowForTarget", {"targetId": made["targetId"]})
    return made["targetId"], found


async def _resize(visitor: Visitor) -> None:
    """Of an ordinary window: Chrome keeps its bounds and opens the next windows with them."""
    session = await visitor.page()
    target = next(target for target, one in visitor.pages.items() if one == session)
    window = await visitor.browser.send("Browser.getWindowForTarget", {"targetId": target})
    bounds = {"width": 555, "height": 444}
    await visitor.browser.send("Browser.setWindowBounds", {"windowId": window["windowId"], "bounds": bounds})


async def _is_resized(visitor: Visitor, _mark: Any) -> bool:
    target, window = await _new_window_bounds(visitor)
    await visitor.browser.send("Target.closeTarget", {"targetId": target})
    return bool(window["bounds"]["width"] == 555 or window["bounds"]["height"] == 444)


async def _use_hsts(visitor: Visitor) -> None:
    """By Chrome's own page for it, since a loopback page without a certificate cannot say so in a header."""
    session = await _chrome_page(visitor, "chrome://net-internals/#hsts")
    form = f"""(() => {{
      const find = id => (function walk(node) {{
        if (node.id === id) return node;
        for (const child of [...(node.shadowRoot ? [node.shadowRoot] : []), ...node.childNodes]) {{
          const found = walk(child); if (found) return found;
        }}
      }})(document);
      const input = find('hsts-view-add-input');
      if (!input) return false;
      input.value = '{HSTS_HOST}';
      find('hsts-view-add-form').requestSubmit();
      return true;
    }})()"""
    assert await visitor.until(form, session)
    await visitor.close(session)


async def _has_hsts(visitor: Visitor, _mark: Any) -> bool:
    port = visitor.origin.rpartition(":")[2]
    session = await visitor.page(new=True)
    return bool(
        await visitor.go(session, f"http://{HSTS_HOST}:{port}/page")
    )  # https, where nobody speaks TLS


def _download(folder: Callable[[Visitor], str]) -> tuple[Step, Look]:
    """A file that Chrome's own uid writes where the caller says, and that a file system's owner would find."""

    async def left(visitor: Visitor) -> str:
        path = folder(visitor)
        name = f"farm-leak-{os.urandom(4).hex()}.bin"
        behaviour = {"behavior": "allow", "eventsEnabled": True}
        if path:
            behaviour["downloadPath"] = path
        with visitor.browser.events("") as events:
            await visitor.browser.send("Browser.setDownloadBehavior", behaviour)
            await visitor.run(f"location.href = '/download?name={quote(name)}'")
            async with asyncio.timeout(WAIT_S):
                async for event in events:
                    if event.method == "Browser.downloadProgress" and event.params["state"] == "completed":
                        return name
        raise AssertionError("no download")

    async def looked(visitor: Visitor, mark: Any) -> bool:
        """Looked for until it is gone: files may go up to seconds after the lease, other state may not."""
        places = [Path(visitor.server.work), *visitor.server.foreign]
        end = time.monotonic() + FILES_GONE_S
        while any(mark in names for place in places for _folder, _folders, names in os.walk(place)):
            if visitor.server.leases == 1 or time.monotonic() > end:
                return True
            await asyncio.sleep(0.1)
        return False

    return left, looked


INDEXED_DB = script(
    """new Promise((resolve, reject) => {
      const asked = indexedDB.open('left', 1);
      asked.onupgradeneeded = () => asked.result.createObjectStore('things').put('x', 'k');
      asked.onsuccess = () => { asked.result.close(); resolve(1); };
      asked.onerror = () => reject(asked.error);
    })""",
    "indexedDB.databases().then(all => all.some(one => one.name === 'left'))",
)
LEAKS = (
    Leak(
        "cookie",
        *script("document.cookie = 'left=1; max-age=9999; path=/'", "document.cookie.includes('left=1')"),
    ),
    Leak("http-only cookie", _set_http_only_cookie, _has_http_only_cookie),
    Leak("localStorage", *script("localStorage.left = 1", "localStorage.left === '1'")),
    Leak("sessionStorage", *script("sessionStorage.left = 1", "sessionStorage.left === '1'")),
    Leak("IndexedDB", *INDEXED_DB),
    Leak(
        "CacheStorage",
        *script("caches.open('left').then(c => c.put('/x', new Response('x')))", "caches.has('left')"),
    ),
    Leak(
        "OPFS",
        *script(
            "navigator.storage.getDirectory().then(d => d.getFileHandle('left', {create: true})).then(() => 1)",
            "navigator.storage.getDirectory().then(d => d.getFileHandle('left')).then(() => true, () => false)",
        ),
    ),
    Leak(
        "service worker",
        *script(
            "navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready).then(() => 1)",
            "navigator.serviceWorker.getRegistrations().then(all => all.length > 0)",
        ),
    ),
    Leak("HTTP cache", _fetch_cached, _is_cached),
    Leak("HTTP credentials", _sign_in, _is_signed_in),
    Leak("HSTS", _use_hsts, _has_hsts),
    Leak("history", _visit, _is_in_history),
    Leak("tabs", _open_tabs, _has_tabs),
    Leak("permissions", _grant, _is_granted),
    Leak("font size setting", *_pref("webkit.webprefs.default_font_size", 33)),
    Leak(
        "proxy setting",
        *_pref(
            "proxy",
            {"mode": "fixed_servers", "server": "127.0.0.1:9", "bypass_list": "127.0.0.0/8,*.test"},
        ),
    ),
    Leak("emulation", _emulate, _is_emulated),
    Leak("window bounds", _resize, _is_resized),
    Leak("download in Chrome's own directory", *_download(lambda visitor: visitor.server.chrome_home())),
    Leak("download in a shared folder", *_download(lambda visitor: str(visitor.server.foreign[0]))),
    Leak("download in shared memory", *_download(lambda visitor: str(visitor.server.foreign[1]))),
)
