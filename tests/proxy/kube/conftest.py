"""An API server that the test plays: each request waits until the test answers it, so no test sleeps."""

import asyncio
import io
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from farmproxy.config.settings import Settings
from farmproxy.kube.watcher import Watcher
from farmproxy.observe import logs
from farmproxy.observe.metrics import Metrics

PATIENCE_S = 20  # only a hung test waits so long
PATH = "/apis/discovery.k8s.io/v1/namespaces/farm/endpointslices"


class Stream:
    """A watch under way."""

    def __init__(self):
        self.chunks = asyncio.Queue()

    def raw(self, data):
        self.chunks.put_nowait(data)

    def event(self, kind, raw):
        self.raw(json.dumps({"type": kind, "object": raw}).encode() + b"\n")

    def end(self):
        self.chunks.put_nowait(None)

    def cut(self):
        self.chunks.put_nowait("cut")


class Call:
    """One request of the proxy; answer it once."""

    def __init__(self, request):
        self.query = dict(request.query)
        self.headers = request.headers
        self.path = request.path
        self.answer = asyncio.get_running_loop().create_future()

    @property
    def watch(self):
        return self.query.get("watch") == "true"

    def json(self, body, status=200, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answer.set_result(web.Response(body=data, status=status, headers=named))

    def list(self, version, *slices, more=None):
        assert not self.watch
        self.json({"metadata": {"resourceVersion": version, "continue": more}, "items": list(slices)})

    def stream(self):
        assert self.watch
        stream = Stream()
        self.answer.set_result(stream)
        return stream


class Api:
    def __init__(self):
        self.calls = asyncio.Queue()
        self.port = 0
        self._runner = None

    async def open(self, tls=None):
        app = web.Application()
        app.router.add_get(PATH, self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self):
        await self._runner.cleanup()

    async def next(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self.calls.get()

    async def _handle(self, request):
        call = Call(request)
        self.calls.put_nowait(call)
        answer = await call.answer
        if not isinstance(answer, Stream):
            return answer
        response = web.StreamResponse()
        await response.prepare(request)
        while (chunk := await answer.chunks.get()) is not None:
            if chunk == "cut":
                request.transport.abort()
                break
            await response.write(chunk)
        return response


class Pauses:
    """The watcher's sleeps, recorded; ``gate`` cleared makes it wait in one."""

    def __init__(self):
        self.taken = []
        self.begun = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, seconds):
        self.taken.append(seconds)
        self.begun.put_nowait(seconds)
        await asyncio.sleep(0)
        await self.gate.wait()


class Bench:
    """A watcher at work and all that it does."""

    def __init__(self, api, settings, clock):
        self.api = api
        self.changes = asyncio.Queue()
        self.pauses = Pauses()
        self.metrics = Metrics(["default"])
        self.lines = io.BytesIO()
        self.on_change = self.changes.put_nowait
        self.watcher = Watcher(
            settings,
            "default",
            "browsers",
            self._tell,
            self.metrics,
            logs.configure(self.lines),
            pause=self.pauses,
            clock=clock,
        )

    def _tell(self, change):
        self.on_change(change)

    async def change(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self.changes.get()

    async def seen(self):
        """The next change as {key: ready}; gone pods are None."""
        change = await self.change()
        return {pod.key: pod.ready for pod in change.seen} | dict.fromkeys(change.gone)

    async def begin(self, version="10", *slices):
        """List once and give the watch that follows."""
        call = await self.api.next()
        call.list(version, *slices)
        return (await self.api.next()).stream()

    def restarts(self):
        values = {reason.value: counter.value for reason, counter in self.metrics.watch_restarts.items()}
        return {reason: int(value) for reason, value in values.items() if value}

    def logged(self, event):
        return [
            line for line in map(json.loads, self.lines.getvalue().splitlines()) if line["event"] == event
        ]


@pytest.fixture
async def api():
    api = Api()
    await api.open()
    yield api
    await api.close()


@pytest.fixture
def watching(api, clock):
    """``async with watching(**settings) as bench``: a watcher that runs while the context lasts."""

    @asynccontextmanager
    async def run(**more):
        url = f"http://127.0.0.1:{api.port}"
        bench = Bench(api, Settings(**{"kube_api": url, "watch_silence_s": 30.0, **more}), clock)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(bench.watcher.run())
            yield bench
            task.cancel()

    return run
