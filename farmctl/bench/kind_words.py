"""When a pod that is clean reaches its next caller: by its agent's word, or as late as its EndpointSlice tells it.

Callers here are sessions over the browser's socket that send one message: a lease that carried nothing needs no recycle.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from farmctl.errors import StageError
from farmctl.testbeds.kind import scaling
from farmctl.testbeds.kind.admin import Admin, all_free
from farmctl.testbeds.kind.kubectl import Kubectl
from farmctl.testbeds.kind.readings import ready_uids
from farmctl.testbeds.kind.state import KindFolder
from farmctl.testbeds.kind.testbed import KindTestbed

IDLE_S = 90.0
SEEN_S = 30.0
LOOK_S = 0.02
APART_S = 0.4  # between two ends, so that no pod's probe waits for another's recycle
LOGGED_S = 1.0  # a line is in its file by then
HELLO = {"id": 1, "method": "Browser.getVersion"}
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dbrowsers"


@dataclass(frozen=True, slots=True)
class Farm:
    """The farm that is measured, and kubectl for what a testbed has no verb for."""

    testbed: KindTestbed
    kubectl: Kubectl
    pods: int

    @classmethod
    async def connect(cls) -> "Farm":
        """Raises StageError when no farm of our own cluster is up here, or it is in use."""
        folder = KindFolder()
        testbed = await KindTestbed.connect(folder)
        there = folder.read()
        assert there is not None  # connected to it
        kubectl, _ = scaling.opened(there, folder, lambda _step: None)
        made = cls(testbed, kubectl, (await testbed.setup()).pods)
        await until_idle(testbed.admin, made.pods)
        return made

    async def idle(self) -> None:
        await until_idle(self.testbed.admin, self.pods)


@dataclass(slots=True)
class Heard:
    """``after_ms``: from a pod's "free" to what was waited for, one a pod."""

    after_ms: list[float] = field(default_factory=list)
    recycle_s: list[float] = field(default_factory=list)


async def until(state: Callable[[], Awaitable[bool]], what: str, limit_s: float) -> None:
    """Ask until it holds. Raises StageError."""
    deadline = time.monotonic() + limit_s
    while not await state():
        if time.monotonic() > deadline:
            raise StageError(f"waited {limit_s:.0f} s in vain until {what}", hint="farmctl status")
        await asyncio.sleep(LOOK_S)


async def until_idle(admin: str, pods: int) -> None:
    """Every pod free, nobody held. Raises StageError when somebody uses the farm."""
    asked = Admin(admin)

    async def idle() -> bool:
        return all_free(await asked.pool(), pods)

    await until(idle, f"{pods} pods are free and nobody is held: is the farm in use?", IDLE_S)


async def replaced(farm: Farm) -> float:
    """Delete one pod as a person would; seconds until the proxy has its replacement free."""
    admin = Admin(farm.testbed.admin)
    before = await farm.testbed.pods()
    known = {pod.uid for pod in before}

    async def free() -> bool:
        pool = await admin.pool() or {"pods": []}
        return any(pod["uid"] not in known and pod["state"] == "free" for pod in pool["pods"])

    began = time.monotonic()
    words = ("delete", "pod", before[0].name, "-n", farm.testbed.namespace, "--wait=false")
    await asyncio.to_thread(farm.kubectl, *words)
    await until(free, "a replacement is free", IDLE_S)
    seconds = time.monotonic() - began
    await farm.idle()
    return seconds


async def by_word(farm: Farm) -> Heard:
    """Every pod in use and as many callers held: each end makes one pod clean, and one held caller gets it."""
    mark = time.time()
    admin = Admin(farm.testbed.admin)

    async def all_held() -> bool:
        pool = await admin.pool()
        return pool is not None and len(pool["held"]) == farm.pods

    async with aiohttp.ClientSession() as client, AsyncExitStack() as rest:
        first = await _sessions(client, farm.testbed.door, farm.pods)
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(_session(client, farm.testbed.door)) for _ in first]
            await until(all_held, f"{farm.pods} callers are held", SEEN_S)
            for each in first:
                await each.close()
                await asyncio.sleep(APART_S)
        for task in held:
            rest.push_async_callback(task.result().close)
    await farm.idle()
    await asyncio.sleep(LOGGED_S)
    return heard(await farm.testbed.pod_logs_since(mark))


def heard(logs: dict[str, list[str]]) -> Heard:
    """From each pod's first "free" to the lease that began next."""
    found = Heard()
    for lines in logs.values():
        events = [json.loads(line) for line in lines]
        free_at = None
        for event in events:
            if event["event"] == "recycled":
                found.recycle_s.append(event["recycle_s"])
            elif event["event"] == "free":
                free_at = event["t"]
            elif event["event"] == "lease-began" and free_at is not None:
                found.after_ms.append((event["t"] - free_at) * 1000)
                break
    if not found.after_ms or not found.recycle_s:
        raise StageError("no pod told of a free moment and the lease after it", hint="farmctl logs POD")
    return found


async def by_slice(farm: Farm) -> Heard:
    """The same sessions and ends with nobody held: when does the slice say that each pod is ready again?"""
    mark, uids = time.time(), {pod.name: pod.uid for pod in await farm.testbed.pods()}
    async with watched(farm) as slices, aiohttp.ClientSession() as client:
        sessions = await _sessions(client, farm.testbed.door, farm.pods)
        await until(lambda: _none(slices, uids.values()), "no slice says ready", SEEN_S)
        for each in sessions:
            await each.close()
            await asyncio.sleep(APART_S)
        await until(lambda: _all(slices, uids.values()), "the slices say ready", SEEN_S)
        turned = {name: slices.ready_at[uid] for name, uid in uids.items()}
    await farm.idle()
    await asyncio.sleep(LOGGED_S)
    free = free_moments(await farm.testbed.pod_logs_since(mark))
    return Heard([(turned[name] - free[name]) * 1000 for name in turned if name in free])


def free_moments(logs: dict[str, list[str]]) -> dict[str, float]:
    """Each pod's last "free", in wall-clock seconds."""
    found = {}
    for pod, lines in logs.items():
        for event in map(json.loads, lines):
            if event["event"] == "free":
                found[pod] = event["t"]
    if not found:
        raise StageError("no pod told of a free moment", hint="farmctl logs POD")
    return found


@dataclass(slots=True)
class Slices:
    """What a watch has told: the pods that are ready now, and when (wall clock) each turned so."""

    by_name: dict[str, Any] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    ready_at: dict[str, float] = field(default_factory=dict)

    def take(self, event: dict[str, Any], now: float) -> None:
        self.by_name[event["object"]["metadata"]["name"]] = event["object"]
        if event["type"] == "DELETED":
            del self.by_name[event["object"]["metadata"]["name"]]
        ready = ready_uids(self.by_name.values())
        self.ready_at |= dict.fromkeys(ready - self.ready, now)
        self.ready = ready


async def _none(slices: Slices, uids: Iterable[str]) -> bool:
    return not slices.ready & set(uids)


async def _all(slices: Slices, uids: Iterable[str]) -> bool:
    return set(uids) <= slices.ready


@asynccontextmanager
async def watched(farm: Farm) -> AsyncIterator[Slices]:
    """A watch of the farm's slices while the block runs, one JSON event a line."""
    slices, kubectl = Slices(), farm.kubectl
    words = kubectl.command("get", "--raw", SLICES.format(farm.testbed.namespace) + "&watch=true")
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, env=kubectl.environment(), limit=1 << 22
    )
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(_read(process, slices))
            yield slices
            reading.cancel()
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _read(process: asyncio.subprocess.Process, slices: Slices) -> None:
    assert process.stdout is not None  # a pipe
    async for line in process.stdout:
        slices.take(json.loads(line), time.time())
    raise StageError("the watch of the slices ended", hint="farmctl status")


async def _sessions(
    client: aiohttp.ClientSession, door: str, count: int
) -> list[aiohttp.ClientWebSocketResponse]:
    return list(await asyncio.gather(*(_session(client, door) for _ in range(count))))


async def _session(client: aiohttp.ClientSession, door: str) -> aiohttp.ClientWebSocketResponse:
    """A lease of one's own in which Chrome has answered once."""
    socket = await client.ws_connect(f"{door}/devtools/browser?label=bench", max_msg_size=0)
    await socket.send_json(HELLO)
    await socket.receive_json()
    return socket
