"""When a pod that is clean is free again: by its agent's word, and by its EndpointSlice, of the very same moment.

Callers here are sessions over the browser's socket that send one message: a lease that carried nothing needs no recycle.
"""

import asyncio
import json
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from farmctl.bench.kind.farms import Farm, until
from farmctl.bench.kind.watch_times import Seen, polled, watched
from farmctl.errors import StageError
from farmctl.testbeds.kind.api.admin import Admin

SEEN_S = 30.0
APART_S = 0.4  # between two ends, so that no pod's probe waits for another's recycle
LOGGED_S = 1.0  # a line is in its file by then
HELLO = {"id": 1, "method": "Browser.getVersion"}


@dataclass(slots=True)
class Heard:
    """``session_ms``: from a pod's "free" to its next lease, one a pod; ``recycle_s``: what went before."""

    session_ms: list[float] = field(default_factory=list)
    recycle_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Told:
    """From each pod's "free" until the proxy had it free, and until its slice said ready; in milliseconds."""

    word_ms: list[float]
    slice_ms: list[float]


async def held(farm: Farm) -> Heard:
    """Every pod in use and as many callers held: each end makes one pod clean, and one held caller gets it."""
    mark = time.time()
    admin = Admin(farm.testbed.admin)

    async def all_held() -> bool:
        pool = await admin.pool()
        return pool is not None and len(pool["held"]) == farm.pods

    async with aiohttp.ClientSession() as client, AsyncExitStack() as rest:
        first = await _sessions(client, farm.testbed.door, farm.pods)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(_session(client, farm.testbed.door)) for _ in first]
            await until(all_held, f"{farm.pods} callers are held", SEEN_S)
            for each in first:
                await each.close()
                await asyncio.sleep(APART_S)
        for task in waiting:
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
                found.session_ms.append((event["t"] - free_at) * 1000)
                break
    if not found.session_ms or not found.recycle_s:
        raise StageError("no pod told of a free moment and the lease after it", hint="farmctl logs POD")
    return found


async def told(farm: Farm) -> Told:
    """Sessions on every pod end one after another with nobody held: who says first that each pod is free again?"""
    mark, uids = time.time(), {pod.name: pod.uid for pod in await farm.testbed.pods()}
    async with watched(farm) as slices, polled(farm) as polls, aiohttp.ClientSession() as client:
        await until(lambda: _all(slices, uids.values()), "the slices say ready", SEEN_S)
        sessions = await _sessions(client, farm.testbed.door, farm.pods)
        await until(lambda: _none(slices, uids.values()), "no slice says ready", SEEN_S)
        for each in sessions:
            await each.close()
            await asyncio.sleep(APART_S)
        await until(lambda: _all(slices, uids.values()), "the slices say ready", SEEN_S)
        await until(lambda: _all(polls, uids.values()), "the proxy has every pod free", SEEN_S)
    await farm.idle()
    await asyncio.sleep(LOGGED_S)
    free = free_moments(await farm.testbed.pod_logs_since(mark))

    def after_ms(seen: Seen) -> list[float]:
        return [(seen.ready_at[uid] - free[name]) * 1000 for name, uid in uids.items() if name in free]

    return Told(after_ms(polls), after_ms(slices))


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


async def _none(seen: Seen, uids: Iterable[str]) -> bool:
    return not seen.ready & set(uids)


async def _all(seen: Seen, uids: Iterable[str]) -> bool:
    return set(uids) <= seen.ready


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
