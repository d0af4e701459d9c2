"""What surrounds a farm on the machine of its users: the names of loopback, and proxies, the farm's way or a page's."""

import asyncio
import base64
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.async_api import async_playwright

from farmctl.client import lease

pytestmark = pytest.mark.timeout(240, func_only=True)


def connected(endpoint, **env):
    """Whether Playwright gets a browser there, in a process of its own with more in its environment."""
    script = (
        "import sys; from playwright.sync_api import sync_playwright as start\n"
        "with start() as playwright: playwright.chromium.connect_over_cdp(sys.argv[1], timeout=60000).close()"
    )
    words = [sys.executable, "-c", script, endpoint]
    ran = subprocess.run(words, env=os.environ | env, capture_output=True, text=True, timeout=90, check=False)
    return ran.returncode == 0


def test_a_door_on_loopback_is_had_by_each_of_its_names(door, testbed):
    if testbed != "local":
        pytest.skip("kind's engine publishes what it was told to")
    port = urlsplit(door).port
    for host in ("127.0.0.1", "localhost", "[::1]"):
        for scheme in ("http", "ws"):
            assert connected(f"{scheme}://{host}:{port}"), (scheme, host)


NOWHERE = dict.fromkeys(
    [name for each in ("http_proxy", "https_proxy", "all_proxy") for name in (each, each.upper())],
    "http://127.0.0.1:9",
)


def test_a_proxy_of_the_environment_is_not_asked_for_the_farm(door, testbed):
    assert connected(door.replace("http", "ws", 1), **NOWHERE)
    # over http Playwright asks the proxy for the discovery, as docs/door.md says
    assert not connected(door, **NOWHERE)
    assert connected(door, **NOWHERE, NO_PROXY=urlsplit(door).hostname)
    commands = [["status"], ["scenario", "stale-endpoint"]]
    if testbed == "local":  # where a pod may have pages of this machine
        commands.append(["render", f"{door}/json/version"])
    for words in commands:
        ran = subprocess.run(
            [sys.executable, "-m", "farmctl", *words],
            env=os.environ | NOWHERE,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, (words, ran.stderr)


USERS = {"alice": "p@ss:w/rd", "bob": "another"}


class AskingProxy(BaseHTTPRequestHandler):
    """Answers for any host, once it knows who asks, with the asker's name."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        told = self.headers.get("Proxy-Authorization", "").removeprefix("Basic ")
        name, _, password = base64.b64decode(told).decode().partition(":")
        known = name in USERS and USERS[name] == password
        body = f"<title>{name}</title>".encode()
        self.send_response(200 if known else 407)
        if not known:
            self.send_header("Proxy-Authenticate", 'Basic realm="the proxy"')
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words):
        pass


@pytest.fixture
def asking_proxy(testbed):
    if testbed != "local":
        pytest.skip("the proxy is on this machine's loopback")
    server = ThreadingHTTPServer(("127.0.0.1", 0), AskingProxy)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_each_context_has_its_own_proxy_user_whoever_else_is_on_the_lease(door, asking_proxy):
    async def page_of(browser, user):
        asked = {"server": asking_proxy, "username": user, "password": USERS[user]}
        return await (await browser.new_context(proxy=asked)).new_page()

    async def user_seen(page, path):
        async with asyncio.timeout(30):
            await page.goto(f"http://shop.example/{path}")
            return await page.title()

    async with async_playwright() as playwright, lease(door) as leased:
        browser = await playwright.chromium.connect_over_cdp(leased.browser_ws)
        alice, bob = await page_of(browser, "alice"), await page_of(browser, "bob")
        assert [await user_seen(alice, "a"), await user_seen(bob, "b")] == ["alice", "bob"]
        watching = await playwright.chromium.connect_over_cdp(leased.browser_ws)
        assert sum(len(context.pages) for context in watching.contexts) >= 2
        assert [await user_seen(alice, "c"), await user_seen(await page_of(browser, "bob"), "d")] == [
            "alice",
            "bob",
        ]
        await watching.close()
        assert [await user_seen(bob, "e"), await user_seen(await page_of(browser, "alice"), "f")] == [
            "bob",
            "alice",
        ]
        await browser.close()
