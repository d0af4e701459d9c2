"""Two callers, one after the other, in real leases of a real agent: what the first left, what the second finds.

The callers reach the agent through a small relay that makes the lease handshake, as the proxy does.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from farmagent.chrome import cdp

ADDRESS = "127.0.77.1"
START_S = 60.0


def load_leaks():
    """The table beside this file: --import-mode=importlib puts no test folder on the path."""
    spec = importlib.util.spec_from_file_location("farm_leaks", Path(__file__).with_name("leaks.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["farm_leaks"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def leaks():
    return load_leaks()


@dataclass
class Agent:
    """A running agent. ``foreign``: folders besides its work directory that Chrome's user can write to."""

    process: subprocess.Popen
    address: tuple[str, int]
    work: Path
    log: Path
    foreign: tuple[Path, ...]
    leases: int = 0

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def chrome_home(self) -> str:
        """The home directory of the Chrome that is leased now."""
        homes = sorted(self.work.glob("c-*/home"), key=lambda path: path.stat().st_ctime)
        return str(homes[0] / "Downloads")

    async def until_free(self, lease: str = "") -> dict[str, Any]:
        url = f"http://{self.address[0]}:{self.address[1]}/readyz?wait=30" + (
            f"&lease={lease}" if lease else ""
        )
        async with ClientSession() as http, http.get(url) as answer:
            body = await answer.json()
            assert answer.status == 200, (body, self.log.read_text())
            return body

    async def ready(self) -> bool:
        url = f"http://{self.address[0]}:{self.address[1]}/readyz"
        async with ClientSession() as http, http.get(url) as answer:
            return answer.status == 200

    @contextlib.asynccontextmanager
    async def lease(self) -> AsyncIterator["Lease"]:
        """One lease by the handshake; left abruptly (RST) at the block's end."""
        self.leases += 1
        lease = Lease(f"LEASE{self.leases:021d}", self.address)
        async with lease.listening():
            yield lease


@dataclass
class Lease:
    """A relay on loopback: its first connection is the lease, later ones join it."""

    id: str
    address: tuple[str, int]
    ws_url: str = ""
    tasks: set[asyncio.Task] = field(default_factory=set)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    begun: bool = False

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.ws_url = f"ws://{host}:{port}/devtools/browser/farm"
        try:
            yield
        finally:
            server.close()
            self.leave()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    def leave(self) -> None:
        """RST on every connection: a caller's machine that is suddenly gone."""
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self.relay(reader, writer))
        self.tasks.add(task)

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, self.begun = ("Farm-Join" if self.begun else "Farm-Lease"), True
        far_reader, far_writer = await asyncio.open_connection(*self.address)
        self.writers += [writer, far_writer]
        far_writer.write(
            f"GET /lease HTTP/1.1\r\nHost: {self.address[0]}:{self.address[1]}\r\nConnection: Upgrade\r\n"
            f"Upgrade: farm-lease\r\n{kind}: {self.id}\r\nFarm-Lease-Max-S: 300\r\n\r\n".encode()
        )
        while (head := await far_reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 102"):
            pass
        assert head.startswith(b"HTTP/1.1 101"), head
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def running_agent(folder: Path, *through: str, **settings: str) -> AsyncIterator[Agent]:
    """``python -m farmagent`` on an address of this suite's own, ended and gone afterwards. ``through``: a command
    that starts it.
    """
    log, work = folder / "log", folder / "work"
    with foreign_folders() as foreign:
        env = {
            "FARMAGENT_LISTEN": f"{ADDRESS}:0",
            "FARMAGENT_POD": "farm/browsers-1/uid-1",
            "FARMAGENT_WORK_DIR": str(work),
            "FARMAGENT_SPARE_AFTER_S": "0.2",
            "FARMAGENT_PRIVATE_TARGETS": "allow",
            "FARMAGENT_CHROME_ARGS": "'--host-resolver-rules=MAP *.test 127.0.0.1'",
            **settings,
        }
        with log.open("wb") as file:
            process = subprocess.Popen(  # noqa: ASYNC220  (ended by signals; the fork is the test's own time)
                [*through, sys.executable, "-m", "farmagent"], env=os.environ | env, stdout=file, stderr=file
            )
        try:
            agent = Agent(process, await listening_at(process, log), work, log, foreign)
            await agent.until_free()
            yield agent
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


async def listening_at(process: subprocess.Popen, log: Path) -> tuple[str, int]:
    async with asyncio.timeout(START_S):
        while True:
            assert process.poll() is None, log.read_text()
            for line in log.read_text().splitlines():
                if line.startswith("{") and (event := json.loads(line))["event"] == "listening":
                    host, _, port = event["address"].rpartition(":")
                    return host, int(port)
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def origin() -> AsyncIterator[str]:
    """Pages at one origin that both callers visit."""

    async def page(request: web.Request) -> web.Response:
        title = request.query.get("title", "page")
        return web.Response(text=f"<title>{title}</title><p>page", content_type="text/html")

    async def set_cookie(_: web.Request) -> web.Response:
        answer = web.Response(text="<p>set", content_type="text/html")
        answer.set_cookie("hidden", "1", max_age=9999, httponly=True)
        return answer

    async def cached(_: web.Request) -> web.Response:
        return web.Response(text=secrets.token_hex(), headers={"Cache-Control": "public, max-age=9999"})

    async def basic(request: web.Request) -> web.Response:
        if "Authorization" in request.headers:
            return web.Response(text="in", content_type="text/html")
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="left"'})

    async def worker(_: web.Request) -> web.Response:
        return web.Response(text="onfetch = () => 0", content_type="text/javascript")

    async def download(request: web.Request) -> web.Response:
        name = request.query["name"]
        return web.Response(body=b"left", headers={"Content-Disposition": f"attachment; filename={name}"})

    app = web.Application()
    routes = {
        "/page": page, "/tab": page, "/set-cookie": set_cookie, "/cached": cached, "/basic": basic,
        "/worker.js": worker, "/download": download,
    }  # fmt: skip
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass
class Findings:
    """By leak's name: what the one who left it saw, and the next caller. Texts are reasons why it was not left."""

    same_lease: dict[str, bool] = field(default_factory=dict)
    next_lease: dict[str, bool] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def foreign_folders() -> Iterator[tuple[Path, ...]]:
    """World-writable folders that stand for a pod's /tmp and /dev/shm: the machine's own are others' too."""
    with (
        tempfile.TemporaryDirectory(prefix="farm-foreign-") as one,
        tempfile.TemporaryDirectory(prefix="farm-foreign-", dir="/dev/shm") as two,
    ):
        for path in (one, two):
            Path(path).chmod(0o1777)
        yield Path(one), Path(two)


async def two_callers(folder: Path, recycle: str, leaks: Any) -> Findings:
    found, marks = Findings(), {}
    async with origin() as site, running_agent(folder, FARMAGENT_RECYCLE=recycle) as agent:
        async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
            first = leaks.Visitor(browser, site, agent)
            for leak in leaks.LEAKS:
                try:
                    marks[leak.name] = await leak.leave(first)
                    found.same_lease[leak.name] = await leak.look(first, marks[leak.name])
                except (AssertionError, cdp.CdpError, TimeoutError) as error:
                    found.errors[leak.name] = f"{type(error).__name__}: {error}"
            lease.leave()
        await agent.until_free(lease.id)
        async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
            second = leaks.Visitor(browser, site, agent)
            for leak in leaks.LEAKS:
                if leak.name in marks:
                    try:
                        found.next_lease[leak.name] = await leak.look(second, marks[leak.name])
                    except (AssertionError, cdp.CdpError, TimeoutError) as error:
                        found.errors[leak.name] = f"the second look: {type(error).__name__}: {error}"
    return found


@pytest.fixture(name="origin")
def _origin():
    return origin


@pytest.fixture(name="running_agent")
def _running_agent():
    return running_agent


@pytest.fixture
def folder():
    """Short (a UNIX socket's path is limited) and open to Chrome's own uid, which pytest's tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="farm-reset-") as path:
        Path(path).chmod(0o711)
        yield Path(path)


@pytest.fixture(scope="module", params=["fresh", "spare"])
def findings(request: pytest.FixtureRequest, leaks: Any) -> Findings:
    with tempfile.TemporaryDirectory(prefix="farm-reset-") as path:
        Path(path).chmod(0o711)
        return asyncio.run(two_callers(Path(path), request.param, leaks))
