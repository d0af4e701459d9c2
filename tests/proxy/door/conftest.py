"""A whole proxy in the test's own loop, scripted fake pods on loopback, and raw callers."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
import structlog
from farmproxy.config.parsers import HostPort
from farmproxy.config.settings import Settings
from farmproxy.config.tokens import Tokens
from farmproxy.core.events import PodsChanged, PodSeen
from farmproxy.proxy import Proxy

Script = Callable[["FakePod", "Shake"], Awaitable[None]]


class Shake:
    """One /lease request of the proxy: its head, and the connection it came on."""

    def __init__(self, head, reader, writer):
        self.head = head
        self.fields = fields_of(head)
        self.reader = reader
        self.writer = writer
        self.request = b""  # the caller's head, as the pod got it

    def send(self, data):
        self.writer.write(data)

    def accept(self, pod, **changed):
        fields = {
            "Farm-Lease": self.fields.get("farm-lease", self.fields.get("farm-join", "")),
            "Farm-Pod": f"farm/{pod.name}/{pod.uid}",
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
        self.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\n"
            + lines.encode()
            + b"\r\n"
        )

    async def read_request(self):
        self.request = await self.reader.readuntil(b"\r\n\r\n")
        return self.request

    def reset(self):
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def fields_of(head):
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


def json_answer(status, told, extra=""):
    body = json.dumps(told).encode()
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode() + body


# --- what a pod does with /lease


async def serve_echo(pod, shake):
    """A good pod: 101, the caller's head, a WebSocket-like 101 of its own, then everything back."""
    shake.accept(pod)
    await shake.read_request()
    shake.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    while data := await shake.reader.read(65536):
        shake.send(data)
        await shake.writer.drain()


async def serve_render(pod, shake):
    """A good pod: 101, head and body in, one answer out, closed once the proxy is done."""
    shake.accept(pod)
    head = await shake.read_request()
    body = await shake.reader.readexactly(int(fields_of(head).get("content-length", "0")))
    shake.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def hang_leased(pod, shake):
    shake.accept(pod)
    await shake.reader.read()


async def hang(pod, shake):
    await shake.reader.read()


def answer(data):
    async def script(pod, shake):
        shake.send(data)

    return script


def busy(reason):
    return answer(json_answer(409, {"reason": reason}))


class FakePod:
    """``scripts`` are used one a /lease, the last for ever. ``free`` is what /readyz says; ``end`` what it adds."""

    def __init__(self, name, *scripts):
        self.name = name
        self.uid = f"uid-{name}"
        self.scripts = list(scripts) or [serve_echo]
        self.shakes = []
        self.asked = []
        self.free = asyncio.Event()
        self.free.set()
        self.end = "done"
        self.joins = None  # script for Farm-Join
        self.running = 0
        self.most = 0
        self._server = None
        self._tasks = set()
        self.address, self.port = "", 0

    async def start(self, address="127.0.0.1"):
        self._server = await asyncio.start_server(self._serve, address, self.port)
        self.address, self.port = self._server.sockets[0].getsockname()[:2]
        return self

    async def stop(self):
        """Nothing listens any more, and every connection is reset."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def seen(self, ready=True, terminating=False, fresh_ready=False, uid=True):
        key = self.uid if uid else f"{self.address}:{self.port}"
        return PodSeen(key, self.name, self.address, self.port, ready, terminating, fresh_ready)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target = head.split(b" ")[1].decode()
                if target.startswith("/readyz"):
                    await self._readyz(target, writer)
                elif target.startswith("/json/version"):
                    writer.write(json_answer(200, {"Browser": f"Fake/{self.name}"}))
                else:
                    await self._lease(Shake(head, reader, writer))
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # a cancelled task of start_server's own would be reported as a fault
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    async def _lease(self, shake):
        if "farm-join" in shake.fields and self.joins is not None:
            await self.joins(self, shake)
            return
        self.shakes.append(shake)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await script(self, shake)
        finally:
            self.running -= 1

    async def _readyz(self, target, writer):
        self.asked.append(target)
        query = dict(part.split("=") for part in target.partition("?")[2].split("&"))
        with contextlib.suppress(TimeoutError):
            # Not wait_for: in 3.11 it swallows a cancellation that comes together with the result.
            async with asyncio.timeout(float(query.get("wait", 0)) or 0.01):
                await self.free.wait()
        told = {"lease": query.get("lease"), "end": self.end}
        if self.free.is_set():
            writer.write(json_answer(200, told))
        else:
            writer.write(json_answer(503, {**told, "reason": "recycling"}))


class RawCaller:
    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def send(self, data):
        self.writer.write(data)

    async def head(self):
        """The next head: (status, fields)."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)
        return int(head.split(b" ")[1]), fields_of(head)

    async def answer(self):
        """The next answer with a length: (status, fields, body)."""
        status, fields = await self.head()
        body = await asyncio.wait_for(self.reader.readexactly(int(fields.get("content-length", "0"))), 5)
        return status, fields, body

    async def refusal(self):
        """A refusal: (status, reason), and the connection is closed after it."""
        status, fields, body = await self.answer()
        told = json.loads(body)
        assert set(told) == {"reason", "detail", "retry_after_s"}
        assert fields["connection"] == "close"
        assert await asyncio.wait_for(self.reader.read(), 5) == b""
        self.close()
        return status, told["reason"]

    def close(self):
        self.writer.close()

    def reset(self):
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Log:
    """Every line of the proxy's log as a dict."""

    def __init__(self):
        self.lines = []

    def __call__(self, _logger, method, event):
        self.lines.append({**event, "level": method})
        raise structlog.DropEvent

    def of(self, event):
        return [line for line in self.lines if line["event"] == event]


class DoorFarm:
    """The proxy under test, the core's invariants checked after every event."""

    def __init__(self, **settings):
        told = {"door": HostPort("127.0.0.1", 0), "kube_api": "http://127.0.0.1:1", **settings}
        self.log = Log()
        logger = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.log])
        descriptors = told.pop("descriptors", 4096)
        self.settings = Settings(**told)
        tokens = Tokens(self.settings.tokens_file, self.settings.agent_key_file, logger)
        self.proxy = Proxy(self.settings, tokens, logger, descriptors=descriptors)
        self.metrics = self.proxy.metrics
        self.pods = []
        self._callers = []
        handle = self.proxy.farm.handle

        def checked(event, now):
            commands = handle(event, now)
            self.proxy.farm.check_invariants()
            return commands

        self.proxy.farm.handle = checked

    def start(self):
        self.proxy.start()
        self.address = self.proxy.open_door()
        return self

    async def add(self, *pods, ready=True):
        for pod in pods:
            if not pod.port:
                await pod.start()
            self.pods.append(pod)
        self.tell(*(pod.seen(ready) for pod in pods))

    def tell(self, *seen, gone=()):
        self.proxy.pods_changed(PodsChanged("default", tuple(seen), tuple(gone)))

    async def caller(self, data=b""):
        reader, writer = await asyncio.open_connection(*self.address)
        caller = RawCaller(reader, writer)
        self._callers.append(caller)
        if data:
            caller.send(data)
        return caller

    async def get(self, target, **fields):
        return await self.caller(self.request("GET", target, **fields))

    async def upgrade(self, target="/devtools/browser/farm", **fields):
        return await self.get(
            target, Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Key="a2V5", **fields
        )

    def request(self, method, target, body=None, **fields):
        lines = {
            "Host": str(self.address),
            **{name.replace("_", "-"): value for name, value in fields.items()},
        }
        if body is not None:
            lines["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")

    def counts(self, pool="default"):
        return self.proxy.farm.counts(pool)

    def count(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)

    async def until(self, condition, seconds=5.0):
        """Wait for a state, however long it takes up to the limit."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    async def idle(self):
        """Nothing is held, dialled or leased, no connection is open but idle questions, no bug was logged."""
        await self.until(
            lambda: (
                not self.proxy.driver.lease_requests
                and self.counts().demand == 0
                and not self.proxy.driver.lease_log
            )
        )

    async def stop(self):
        for caller in self._callers:
            caller.close()
        for pod in self.pods:
            await pod.stop()
        self.proxy.stop()
        for caller in self._callers:
            with contextlib.suppress(Exception):
                await caller.writer.wait_closed()
        assert self.log.of("bug") == []
        assert self.log.of("illegal-event") == []


@pytest.fixture
async def new_farm():
    farms = []

    def make(**settings):
        farm = DoorFarm(**settings).start()
        farms.append(farm)
        return farm

    yield make
    for farm in farms:
        async with asyncio.timeout(10):
            await farm.stop()


@pytest.fixture
async def farm(new_farm):
    return new_farm()


class Fakes:
    """The names that tests use; test files cannot import a conftest."""

    Pod = FakePod
    serve_echo = staticmethod(serve_echo)
    serve_render = staticmethod(serve_render)
    hang = staticmethod(hang)
    hang_leased = staticmethod(hang_leased)
    answer = staticmethod(answer)
    busy = staticmethod(busy)
    json_answer = staticmethod(json_answer)
    fields_of = staticmethod(fields_of)


@pytest.fixture
def fakes():
    return Fakes
