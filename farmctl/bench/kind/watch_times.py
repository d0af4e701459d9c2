"""Two witnesses of when a pod is free again: the proxy's own /status, and a watch of the farm's EndpointSlices."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from farmwire import paths

from farmctl.bench.kind.farms import Farm
from farmctl.errors import StageError
from farmctl.testbeds.kind.api.pod_status import ready_uids

POLL_S = 0.002
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dbrowsers"


@dataclass(slots=True)
class Seen:
    """The pods that are free by one witness's word, and when (wall clock) each turned so."""

    ready: set[str] = field(default_factory=set)
    ready_at: dict[str, float] = field(default_factory=dict)

    def take(self, ready: set[str], now: float) -> None:
        self.ready_at |= dict.fromkeys(ready - self.ready, now)
        self.ready = ready


@dataclass(slots=True)
class Slices(Seen):
    """What a watch of the farm's slices has told."""

    by_name: dict[str, Any] = field(default_factory=dict)

    def changed(self, event: dict[str, Any], now: float) -> None:
        self.by_name[event["object"]["metadata"]["name"]] = event["object"]
        if event["type"] == "DELETED":
            del self.by_name[event["object"]["metadata"]["name"]]
        self.take(ready_uids(self.by_name.values()), now)


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
        slices.changed(json.loads(line), time.time())
    raise StageError("the watch of the slices ended", hint="farmctl status")


@asynccontextmanager
async def polled(farm: Farm) -> AsyncIterator[Seen]:
    """The proxy's own /status, asked all the time on one connection while the block runs."""
    seen = Seen()
    async with aiohttp.ClientSession() as client, asyncio.TaskGroup() as group:
        asking = group.create_task(_ask(client, f"{farm.testbed.admin}{paths.STATUS}", seen))
        yield seen
        asking.cancel()


async def _ask(client: aiohttp.ClientSession, url: str, seen: Seen) -> None:
    while True:
        async with client.get(url) as answer:
            status = json.loads(await answer.read())
        free = {
            pod["uid"] for pool in status["pools"].values() for pod in pool["pods"] if pod["state"] == "free"
        }
        seen.take(free, time.time())
        await asyncio.sleep(POLL_S)
