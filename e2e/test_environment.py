"""What surrounds a farm on the machine of its users: the names of loopback, proxies, and other runs of these tests."""

import asyncio
import base64
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import async_playwright

from farmctl.client import lease
from farmctl.testbeds.finding import current
from farmctl.testbeds.local.settings import NETWORK_VARIABLE

THIS = "e2e/test_environment.py"

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


@asynccontextmanager
async def ingress(door, *, strips):
    """An ingress that serves the door at /farm, as nginx and its kin do; yields its own address with that path."""

    async def copy(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            parts = urlsplit(door)
            behind, ahead = await asyncio.open_connection(parts.hostname, parts.port)
            told = f"X-Forwarded-Prefix: /farm\r\nX-Forwarded-Host: {address}\r\nX-Forwarded-Proto: http\r\n"
            if b"websocket" not in head:  # one request a connection
                head = re.sub(rb"(?i)connection: .*\r\n", b"", head)
                told += "Connection: close\r\n"
            path = rb" /" if strips else rb" /farm/"
            ahead.write(re.sub(rb" /farm/?", path, head[:-2], count=1) + told.encode() + b"\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(copy(behind, writer))
                group.create_task(copy(reader, ahead))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        yield f"http://{address}/farm"


@pytest.mark.parametrize("strips", [True, False], ids=["stripped", "handed on"])
async def test_a_farm_behind_an_ingress_at_a_path(door, testbed, strips):
    if testbed != "local":
        pytest.skip("its proxy is told whom to trust on the local testbed")
    await (await current()).set_proxy_env({"FARMPROXY_TRUSTED_PROXIES": "127.0.0.0/8"})
    try:
        async with ingress(door, strips=strips) as public, async_playwright() as playwright:
            for endpoint in (public, public.replace("http", "ws", 1)):
                browser = await playwright.chromium.connect_over_cdp(endpoint, timeout=60_000)
                assert browser.version
                await browser.close()
            async with lease(public) as leased:
                # what the lease says, and what its pod's own discovery says below it
                assert leased.http.startswith(f"{public}/leases/")
                for endpoint in (leased.browser_ws, leased.http):
                    browser = await playwright.chromium.connect_over_cdp(endpoint, timeout=60_000)
                    assert browser.version
                    await browser.close()
    finally:
        await (await current()).restore()


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


def second_run(folder, *words, network="127.0.88"):
    """Another run of these tests, in a session and with a state folder of its own."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            *words,
            "--testbed",
            "local",
            "--basetemp",
            folder / "temporary",
            "-q",
        ],
        env=os.environ | {"FARMCTL_STATE": str(folder / "state"), NETWORK_VARIABLE: network},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def left_behind(folder):
    """Processes that name the run's folder, and what lies in its state."""
    running = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in entry.read_bytes():
                running.append(entry.parent.name)
    return running, list((folder / "state").glob("*"))


def test_a_second_run_for_the_same_door_is_refused_and_leaves_nothing(door, testbed, tmp_path):
    if testbed != "local":
        pytest.skip("of the local testbed")
    run = second_run(
        tmp_path,
        f"{THIS}::test_a_door_on_loopback_is_had_by_each_of_its_names",
        "--door",
        urlsplit(door).netloc,
    )
    said, _ = run.communicate(timeout=60)
    assert (run.returncode, "the port is taken by another program" in said) == (3, True), said
    assert left_behind(tmp_path) == ([], [])


def test_several_workers_are_refused_before_anything_is_made(tmp_path):
    (tmp_path / "xdist_like.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--numprocesses', type=int)\n"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(tmp_path))
        run = second_run(tmp_path, THIS, "-k", "no test", "-p", "xdist_like", "--numprocesses", "2")
    said, _ = run.communicate(timeout=60)
    assert (run.returncode, "in one process, without -n" in said) == (pytest.ExitCode.USAGE_ERROR, True), said
    assert left_behind(tmp_path) == ([], [])


@pytest.mark.parametrize("interrupted", ["the terminal's whole group", "pytest alone"])
def test_ctrl_c_while_the_farm_comes_up_leaves_nothing(testbed, tmp_path, unused_tcp_port, interrupted):
    if testbed != "local":
        pytest.skip("of the local testbed")
    run = second_run(tmp_path, THIS, "--door", f"127.0.0.2:{unused_tcp_port}")
    limit = time.monotonic() + 30
    while not (tmp_path / "state" / "settings.json").exists():
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < limit
        time.sleep(0.01)
    (os.killpg if interrupted == "the terminal's whole group" else os.kill)(run.pid, signal.SIGINT)
    said, _ = run.communicate(timeout=90)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, said
    assert left_behind(tmp_path) == ([], [])
