"""A pod under test: the real server, driver and sessions over a Chrome that is an asyncio stub in this process."""

import asyncio
import contextlib
import itertools
import json
import tempfile
import time
from pathlib import Path

import pytest
from farmagent.chrome.binaries import Binary
from farmagent.chrome.directories import WorkDirectory
from farmagent.chrome.leftover_files import Places
from farmagent.chrome.uids import Uids
from farmagent.errors import ChromeStartError
from farmagent.lease.browsers import ChromeLauncher
from farmagent.lease.leasing import Leasing
from farmagent.lease.pod import Pod
from farmagent.server import AgentServer
from farmagent.settings import Settings
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

POD_ENV = {"FARMAGENT_LISTEN": "127.0.0.1:0", "FARMAGENT_POD": "farm/browsers-1/uid-1"}
PIDS = itertools.count(1_000_000_000)


class FakeChrome:
    """Speaks enough CDP: Browser.getVersion, Browser.close, Test.echo, Test.burst; /json pages; can freeze and die."""

    def __init__(self, directories, start):
        self.directories = directories
        self.low = start.low
        self.flags, self.environment = start.flags, start.environment
        self.product = "Own/1" if "--user-agent=x" in start.flags else "Fake/1"
        self.pid = next(PIDS)
        self.exited = asyncio.Event()
        self.returncode = None
        self.frozen = False
        self.busy = False  # silent because it works
        self.pages = 0
        self.lifted = False
        self.heads = []  # of every upgrade it saw
        self._server = None

    async def listening(self, *, timeout_s):
        if self.exited.is_set():
            raise ChromeStartError(f"exit code {self.returncode} at start; Chrome said nothing")
        server = await serve(
            self._talk, "127.0.0.1", 0, process_request=self._page, ping_interval=None, origins=[None]
        )
        self._server = server
        self.port = server.sockets[0].getsockname()[1]
        self.ws_url = f"ws://127.0.0.1:{self.port}/devtools/browser/abc"

    async def _page(self, connection, request):
        if request.headers.get("Upgrade"):
            self.heads.append(request)
            if not request.path.startswith("/devtools/"):
                return connection.respond(404, "no such target\n")
            return None
        host = request.headers["Host"]
        pages = {
            "/json/version": {
                "Browser": "Fake/1",
                "webSocketDebuggerUrl": f"ws://{host}/devtools/browser/abc",
            },
            "/json/list": [
                {
                    "id": "P",
                    "webSocketDebuggerUrl": f"ws://{host}/devtools/page/P",
                    "devtoolsFrontendUrl": f"/devtools/inspector.html?ws={host}/devtools/page/P",
                }
            ],
        }
        if request.path not in pages:
            return connection.respond(404, "unknown\n")
        answer = connection.respond(200, json.dumps(pages[request.path]))
        answer.headers["Content-Type"] = "application/json"
        return answer

    async def _talk(self, connection):
        with contextlib.suppress(ConnectionClosed):
            await self._converse(connection)

    async def _converse(self, connection):
        async for text in connection:
            while self.frozen or self.busy:
                await asyncio.sleep(0.01)
            message = json.loads(text)
            self.pages += message["method"] == "Target.createTarget"
            result = {"product": self.product} if message["method"] == "Browser.getVersion" else {}
            if message["method"] == "Test.burst":
                for _ in range(message["params"]["count"]):
                    await connection.send("x" * message["params"]["size"])
            await connection.send(json.dumps({"id": message["id"], "result": result}))
            if message["method"] == "Browser.close":
                self.end(0)
            if message["method"] == "Test.closeSocket":
                connection.transport.close()

    def lift(self):
        self.lifted = True

    def worked_s(self):
        return time.monotonic() if self.busy else 0.0

    def kill(self):
        self.end(-9)

    def end(self, returncode):
        if self.exited.is_set():
            return
        self.returncode = returncode
        if self._server is not None:
            for connection in list(self._server.connections):
                connection.transport.abort()
            self._server.close(close_connections=False)
        self.exited.set()


class OwnUid(Uids):
    """This process's own, for as many Chromes as there are: they are part of it."""

    def __init__(self):
        super().__init__(None)

    async def take(self):
        return self._own

    def give_back(self, user):
        pass

    def end_processes(self, user):
        return []


class PodUnderTest:
    def __init__(self, pod, server, chromes, fail, group):
        self.pod, self.server, self.chromes, self.fail = pod, server, chromes, fail
        self.begin = group.create_task  # what runs beside the test
        self.host, self.port = server.address
        self._writers = []  # kept, or the garbage collector would close what a test still wants open

    @property
    def chrome(self):
        """The fake behind the main Chrome."""
        return self.pod.chrome.process

    async def until(self, condition):
        """Wait for the pod to satisfy the condition."""
        async with asyncio.timeout(5):
            while not condition(self.pod):
                await asyncio.sleep(0.001)

    async def connect(self):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        self._writers.append(writer)
        return reader, writer

    async def close(self):
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def get(self, target, *headers, host="10.0.0.1:9222"):
        """Status, headers and body of one answer on a connection of its own."""
        reader, writer = await self.connect()
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
        writer.write("\r\n".join(lines).encode())
        try:
            return await read_answer(reader)
        finally:
            writer.close()

    async def lease(self, lease="L1", *headers, kind="Farm-Lease", more=b""):
        """The handshake; returns (status, fields, body, reader, writer)."""
        reader, writer = await self.connect()
        lines = ["GET /lease HTTP/1.1", "Host: 10.0.0.1:9222", "Connection: Upgrade", "Upgrade: farm-lease"]
        base = f"Farm-Public-Base: ws://door:9222/leases/{lease}.KEY"
        lines += [f"{kind}: {lease}", "Farm-Waited-Ms: 12", "Farm-Dials: 2", base, *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + more)
        status, fields, body = await read_answer(reader)
        return status, fields, body, reader, writer

    async def leased(self, lease="L1", *headers, **more):
        status, _, body, reader, writer = await self.lease(lease, *headers, **more)
        assert status == 101, body
        return reader, writer


async def read_answer(reader):
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(status_line.split(" ")[1])
        if status == 102:
            return await read_answer(reader)
        length = int(fields.get("content-length", 0))
        body = await reader.readexactly(length)
    return status, fields, body


@contextlib.asynccontextmanager
async def pod_under_test(renderer, **env):
    """``env`` in lower case without FARMAGENT_."""
    settings = Settings.from_env(
        POD_ENV | {f"FARMAGENT_{key.upper()}": str(value) for key, value in env.items()}
    )
    chromes, fail = [], []

    def launch(binary, directories, start):
        chrome = FakeChrome(directories, start)
        chromes.append(chrome)
        if fail and (code := fail.pop(0)):
            chrome.end(int(code))
        return chrome

    with tempfile.TemporaryDirectory() as folder:
        work = WorkDirectory(Path(folder, "work"))
        work.open()
        places = Places((), cut=False)
        launcher = ChromeLauncher(
            settings, Binary(Path("/fake")), work, OwnUid(), places, low_priority=True, launch=launch
        )
        pod = Pod(launcher)
        async with AgentServer(pod, Leasing(pod, renderer)) as server, asyncio.TaskGroup() as group:
            running = group.create_task(pod.run())
            tested = PodUnderTest(pod, server, chromes, fail, group)
            try:
                yield tested
            finally:
                await tested.close()
                running.cancel()
        work.close()
        assert not Path(folder, "work").exists(), "something was left in the work directory"


async def no_renderer(chrome_ws_url, body):
    raise AssertionError("no render in this test")


@pytest.fixture
def pod_with():
    """``async with pod_with(recycle="spare") as pod``: any settings, any renderer."""

    def make(renderer=no_renderer, **env):
        return pod_under_test(renderer, **env)

    return make


@pytest.fixture
async def pod(pod_with):
    """A free pod with default settings."""
    async with pod_with() as tested:
        await tested.until(lambda pod: pod.busy is None)
        yield tested
