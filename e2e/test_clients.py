"""Playwright's and Puppeteer's own examples, through the door, with nothing changed but the endpoint.

The door is FARMCTL_DOOR (with FARMCTL_TOKEN where it wants one), else the one that this run brings up.
"""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.async_api import Error as AsyncError
from playwright.async_api import async_playwright
from playwright.sync_api import Error, sync_playwright

from farmctl.testbeds.finding import current

# Of the test alone: the farm that a fixture brings up has limits of its own.
pytestmark = pytest.mark.timeout(240, func_only=True)
PUPPETEER = "puppeteer-core@24.43.1"
SCRIPT = Path(__file__).with_name("clients") / "puppeteer.cjs"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "farmctl"
CONNECT_MS = 120_000  # covers the hold: pods may be recycling after the test before
FILE = bytes(range(256)) * 20 * 1024  # 5 MiB
PNG = b"\x89PNG\r\n\x1a\n"


class Pages(BaseHTTPRequestHandler):
    """/page sets a cookie; anything else is another page. Serves as a proxy, too: it answers by itself for any host."""

    asked: ClassVar = []  # (target, headers) of each request

    def do_GET(self):
        self.asked.append((self.path, dict(self.headers)))
        body = b"<!DOCTYPE html><title>The page</title><h1>Hello</h1><a href=/other>other</a>"
        if self.path != "/page":
            body = body.replace(b"The page", b"Another")
        self.send_response(200)
        if self.path == "/file":
            body = FILE
            self.send_header("Content-Disposition", "attachment; filename=report.bin")
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "visited=1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words):
        pass


@pytest.fixture(scope="session")
def client_door(request):
    return os.environ.get("FARMCTL_DOOR") or request.getfixturevalue("door")


async def with_proxy(env):
    await (await current()).set_proxy_env(env)


async def pages_host():
    return (await current()).pages_host


async def restored():
    await (await current()).restore()


def elsewhere(coroutine):
    """Run it in a thread: asyncio.run would take the event loop away that pytest-asyncio set in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def own_thread(test):
    """Playwright's sync API switches greenlets; a thread where it did so can parse no more source in Python 3.11."""

    @wraps(test)
    def run(**fixtures):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(test, **fixtures).result()

    return run


@pytest.fixture(scope="module", params=["open door", "door with tokens"])
def token(request, client_door, tmp_path_factory):
    """Both kinds of door: what a caller has to give, "" where nothing is asked."""
    asked = request.param == "door with tokens"
    if "FARMCTL_DOOR" in os.environ:
        given = os.environ.get("FARMCTL_TOKEN", "")
        if asked != bool(given):
            pytest.skip("whether this door asks for tokens is its owner's choice")
        yield given
    elif not asked:
        yield ""
    elif request.getfixturevalue("testbed") == "kind":
        pytest.skip("a tokens file of this machine is out of the proxy's reach on kind")
    else:
        file = tmp_path_factory.mktemp("tokens") / "tokens"
        file.write_text("e2e:a-token-of-this-run\n")
        elsewhere(with_proxy({"FARMPROXY_TOKENS_FILE": str(file)}))
        yield "a-token-of-this-run"
        elsewhere(restored())


@pytest.fixture(scope="module")
def endpoint(client_door, token):
    """The door with its token: what a user writes in place of the address of a Chrome."""
    return f"{client_door}/?{urlencode({'token': token})}" if token else client_door


@pytest.fixture(scope="module")
def ws_endpoint(endpoint):
    parts = urlsplit(endpoint)
    return parts._replace(scheme={"http": "ws", "https": "wss"}[parts.scheme]).geturl()


@pytest.fixture(scope="module")
def pages(request):
    """Pages on this machine, at an address where the pods' Chromes find them."""
    host = "127.0.0.1"
    if "FARMCTL_DOOR" not in os.environ:
        request.getfixturevalue("farm")
        host = elsewhere(pages_host())
    server = ThreadingHTTPServer((host, 0), Pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://{host}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def puppeteer():
    """The folder of node_modules with Puppeteer in it, installed once."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js or npm is not on the PATH")
    folder = CACHE / PUPPETEER
    if not (folder / "node_modules" / "puppeteer-core" / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(folder),
            PUPPETEER,
        ]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if ran.returncode != 0:
            shutil.rmtree(folder)
            pytest.skip(f"npm cannot install {PUPPETEER}: {ran.stderr.strip()[-300:]}")
    return folder / "node_modules"


@own_thread
def test_a_door_with_tokens_takes_no_other(client_door, token):
    if not token:
        pytest.skip("this door asks for none")
    with sync_playwright() as playwright, pytest.raises(Error, match="401"):
        playwright.chromium.connect_over_cdp(f"{client_door}/?token=wrong", timeout=CONNECT_MS)


@pytest.mark.parametrize("scheme", ["http", "ws"])
@own_thread
def test_playwright_s_sync_example(endpoint, ws_endpoint, pages, scheme):
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(
            endpoint if scheme == "http" else ws_endpoint, timeout=CONNECT_MS
        )
        assert browser.version
        page = browser.new_page()
        page.goto(f"{pages}/page")
        assert page.title() == "The page"
        assert page.screenshot().startswith(PNG)
        page.get_by_text("other").click()
        page.wait_for_url("**/other")
        assert page.title() == "Another"
        browser.close()


@pytest.mark.parametrize("scheme", ["http", "ws"])
@own_thread
def test_playwright_s_first_page_is_there_at_once(endpoint, ws_endpoint, pages, scheme):
    """The example in its documentation of connect_over_cdp, after the recycle of the lease before too."""
    with sync_playwright() as playwright:
        for _ in range(2):
            browser = playwright.chromium.connect_over_cdp(
                endpoint if scheme == "http" else ws_endpoint, timeout=CONNECT_MS
            )
            page = browser.contexts[0].pages[0]
            assert [one.url for one in browser.contexts[0].pages] == ["about:blank"]
            page.goto(f"{pages}/page")
            assert page.title() == "The page"
            browser.close()


async def test_playwright_s_async_example(endpoint, pages):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(endpoint, timeout=CONNECT_MS)
        context = await browser.new_context(viewport={"width": 800, "height": 600}, locale="de-DE")
        first, second = await context.new_page(), await context.new_page()
        await first.route(
            "**/other", lambda route: route.fulfill(body="<title>made up</title>", content_type="text/html")
        )
        await first.route("**/*.png", lambda route: route.abort())
        await first.goto(f"{pages}/other")
        await second.goto(f"{pages}/page")
        assert (await first.title(), await second.title()) == ("made up", "The page")
        assert await second.evaluate("([a, b]) => a + b", [40, 2]) == 42
        assert await second.evaluate("[innerWidth, innerHeight, navigator.language]") == [800, 600, "de-DE"]
        assert [cookie["name"] for cookie in await context.cookies()] == ["visited"]
        assert len(context.pages) == 2
        assert await second.locator("h1").inner_text() == "Hello"
        await browser.close()


async def test_each_playwright_browser_is_one_s_own(endpoint, pages):
    async with async_playwright() as playwright:
        first = await playwright.chromium.connect_over_cdp(endpoint, timeout=CONNECT_MS)
        second = await playwright.chromium.connect_over_cdp(endpoint, timeout=CONNECT_MS)
        page = await first.contexts[0].new_page()
        await page.goto(f"{pages}/page")
        assert await first.contexts[0].cookies() != []
        assert await second.contexts[0].cookies() == []
        assert [page.url for page in second.contexts[0].pages if page.url != "about:blank"] == []
        await first.close()
        await second.close()


async def streamed(page, url):
    """The bytes of a download, as docs/door.md has it."""
    session = await page.context.new_cdp_session(page)
    paused = asyncio.get_running_loop().create_future()
    session.once("Fetch.requestPaused", lambda event: paused.set_result(event["requestId"]))
    await session.send("Fetch.enable", {"patterns": [{"urlPattern": url, "requestStage": "Response"}]})
    await page.evaluate("url => { location.href = url }", url)
    request = {"requestId": await paused}
    stream = (await session.send("Fetch.takeResponseBodyAsStream", request))["stream"]
    data, last = b"", False
    while not last:
        part = await session.send("IO.read", {"handle": stream, "size": 1 << 20})
        data += base64.b64decode(part["data"]) if part.get("base64Encoded") else part["data"].encode()
        last = part["eof"]
    await session.send("IO.close", {"handle": stream})
    await session.send("Fetch.failRequest", {**request, "errorReason": "Aborted"})
    await session.detach()
    return data


async def test_a_download_comes_out_as_a_stream_and_by_no_path(endpoint, pages, tmp_path):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(endpoint, timeout=CONNECT_MS)
        page = await (await browser.new_context()).new_page()
        await page.goto(f"{pages}/page")
        assert await streamed(page, f"{pages}/file") == FILE
        async with page.expect_download(timeout=30_000) as started:
            await page.evaluate("url => { location.href = url }", f"{pages}/file")
        # Playwright names a folder of this machine. In a pod Chrome makes one of that name and fills it, with nobody to
        # fetch it; on this machine it is not Chrome's to write to.
        with pytest.raises(AsyncError, match=r"ENOENT|canceled"):
            await (await started.value).save_as(tmp_path / "report.bin")
        assert not (tmp_path / "report.bin").exists()
        assert await page.title() == "The page"
        await browser.close()


async def test_an_upload_of_40_mib_goes_in_as_a_buffer(endpoint, pages):
    data = os.urandom(1 << 20) * 40
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(endpoint, timeout=CONNECT_MS)
        page = await (await browser.new_context()).new_page()
        await page.goto(f"{pages}/page")
        await page.evaluate("document.body.innerHTML = '<input type=file>'")
        await page.locator("input").set_input_files(
            {"name": "big.bin", "mimeType": "application/octet-stream", "buffer": data}
        )
        crc = """async () => {
            const file = document.querySelector("input").files[0];
            const table = Array.from({length: 256}, (_, n) => {
                for (let k = 0; k < 8; k++) n = n & 1 ? 0xEDB88320 ^ (n >>> 1) : n >>> 1;
                return n >>> 0;
            });
            let crc = 0xFFFFFFFF;
            for (const byte of new Uint8Array(await file.arrayBuffer())) crc = table[(crc ^ byte) & 255] ^ (crc >>> 8);
            return [file.name, file.size, (crc ^ 0xFFFFFFFF) >>> 0];
        }"""
        assert await page.evaluate(crc) == ["big.bin", len(data), zlib.crc32(data)]
        await browser.close()


@own_thread
def test_a_lease_s_chrome_has_what_was_asked_for_and_the_next_one_has_not(client_door, token, pages):
    asked = {
        "token": token,
        "proxy_server": urlsplit(pages).netloc,
        "user_agent": "Mine/1 (made for this)",
        "lang": "de-DE,de",
        "timezone": "Asia/Tokyo",
        "window": "1000x700",
        "args": "--hide-scrollbars --force-device-scale-factor=2",
    }
    seen = """[navigator.userAgent, navigator.language, navigator.languages.join(), outerWidth, outerHeight,
        devicePixelRatio, Intl.DateTimeFormat().resolvedOptions().timeZone, new Date(0).getTimezoneOffset()]"""
    with sync_playwright() as playwright:
        query = urlencode({key: value for key, value in asked.items() if value})
        browser = playwright.chromium.connect_over_cdp(f"{client_door}/?{query}", timeout=CONNECT_MS)
        page = browser.contexts[0].new_page()
        page.goto("http://shop.example/page")  # a name that nobody has: only the proxy can answer for it
        assert page.title() == "Another"
        own = ["Mine/1 (made for this)", "de-DE", "de-DE,de", 1000, 700, 2, "Asia/Tokyo", -540]
        assert page.evaluate(seen) == own
        browser.close()
        headers = [headers for target, headers in Pages.asked if target == "http://shop.example/page"][-1]
        assert headers["User-Agent"] == "Mine/1 (made for this)"
        assert headers["Accept-Language"].startswith("de-DE,de")
        for _ in range(4):  # the pod that it was is among these
            browser = playwright.chromium.connect_over_cdp(
                f"{client_door}/?{urlencode({'token': token} if token else {})}", timeout=CONNECT_MS
            )
            page = browser.contexts[0].new_page()
            page.goto(f"{pages}/page")
            assert page.title() == "The page"
            assert not set(page.evaluate(seen)) & set(own)
            browser.close()


@own_thread
def test_an_option_that_cannot_be_had_is_an_error_at_once(client_door, token):
    with sync_playwright() as playwright:
        for wrong, word in (
            ("stealth=true", "stealth"),
            ("args=--no-sandbox", "sandbox"),
            ("lang=_", "lang"),
        ):
            query = f"{wrong}&{urlencode({'token': token})}" if token else wrong
            with pytest.raises(Error, match=word):
                playwright.chromium.connect_over_cdp(f"{client_door}/?{query}", timeout=CONNECT_MS)


@pytest.mark.node
@pytest.mark.parametrize("option", ["browserWSEndpoint", "browserURL"])
def test_puppeteer_s_example(client_door, ws_endpoint, token, pages, puppeteer, option):
    if option == "browserURL" and token:
        pytest.skip(
            "Puppeteer asks browserURL's origin and loses the token; with tokens use browserWSEndpoint"
        )
    endpoint = ws_endpoint if option == "browserWSEndpoint" else client_door
    ran = subprocess.run(
        ["node", str(SCRIPT), endpoint, pages],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | {"NODE_PATH": str(puppeteer)},
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen.pop("version").startswith("Chrome/")
    assert seen == {
        "before": 1,
        "first": "Another",
        "title": "The page",
        "heading": "Hello",
        "sum": 42,
        "png": [640, 480],
        "pdf": "%PDF",
        "intercepted": "made up",
        "cookies": 1,
        "after": 3,
    }
