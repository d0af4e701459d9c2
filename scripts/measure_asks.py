#!/usr/bin/env python3
"""Two proxies, pods that only their agents know to be free: how long a held caller waits beside a pod that the other proxy
gave back, and what asking costs this proxy.

    .venv/bin/python scripts/measure_asks.py [PODS] [PLACES]

The agents are one scripted process; each pod is an address of its own on loopback.
"""

import asyncio
import io
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace

from farmproxy import proxy as proxies
from farmproxy.config.parsers import HostPort
from farmproxy.config.settings import Settings, limits
from farmproxy.config.tokens import Tokens
from farmproxy.core.events import PodsChanged, PodSeen
from farmproxy.observe import logs
from farmproxy.proxy import Proxy

AGENTS = r"""
import asyncio, contextlib, re
free = {}

async def serve(reader, writer):
    pod = writer.get_extra_info("sockname")[0]
    event = free.setdefault(pod, asyncio.Event())
    with contextlib.suppress(Exception):
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET /free"):
                event.set()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            elif head.startswith(b"GET /readyz"):
                wait = float(re.search(rb"wait=([0-9.]+)", head)[1])
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await event.wait()
                status = b"200 OK" if event.is_set() else b"503 X"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")
            elif head.startswith(b"GET /lease") and event.is_set():
                lease = re.search(rb"Farm-Lease: (\w+)", head)[1]
                writer.write(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\nFarm-Lease: " + lease
                             + b"\r\nFarm-Pod: farm/p/" + pod.encode() + b"\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 101 X\r\n\r\n")
                event.clear()
                await reader.read()
                break
            elif head.startswith(b"GET /lease"):
                writer.write(b'HTTP/1.1 409 X\r\nContent-Length: 17\r\n\r\n{"reason":"busy"}')
                break
            else:
                writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def ask(address: str, port: int, target: str) -> None:
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def held_caller(address: HostPort) -> float:
    """Wait for a session; the moment it began."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(
        b"GET /?hold=300 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    at = time.monotonic()
    writer.close()
    return at


async def measure(pods: int, places: int, port: int) -> None:
    by_places = {"default": replace(limits(Settings(), 20_000)["default"], ask_places=places)}
    proxies.limits = lambda *_: by_places  # type: ignore[assignment]
    log = logs.configure(io.BytesIO())
    settings = Settings(door=HostPort("127.0.0.1", 0), kube_api="http://127.0.0.1:1")
    proxy = Proxy(settings, Tokens("", "", log), log, descriptors=20_000)
    proxy.start()
    door = proxy.open_door()
    addresses = [f"127.2.{n // 250}.{n % 250 + 1}" for n in range(pods)]
    seen = [PodSeen(address, address, address, port, True, False) for address in addresses]
    proxy.pods_changed(PodsChanged("default", tuple(seen)))
    async with asyncio.TaskGroup() as tasks:
        caller = tasks.create_task(held_caller(door))
        while proxy.farm.counts("default").pods["unready"] < pods:
            await asyncio.sleep(0.05)
        await asyncio.sleep(6)
        begun, wall = os.times(), time.monotonic()
        await asyncio.sleep(60)
        ended = os.times()
        core = (ended.user + ended.system - begun.user - begun.system) / (time.monotonic() - wall)
        waits = []
        for n in range(10):
            given_back = time.monotonic()
            await ask(addresses[n * pods // 10], port, "/free")
            waits.append(await caller - given_back)
            caller = tasks.create_task(held_caller(door))
            await asyncio.sleep(1)
        caller.cancel()
    print(
        f"{pods} pods, {places} places: {100 * core:.1f} % of a core while a caller is held; "
        f"a pod given back is taken after {statistics.median(waits):.3f} s (median), {max(waits):.3f} s (most)"
    )
    proxy.stop()


def main() -> None:
    pods, places = (int(text) for text in (sys.argv[1:] + ["1000", "1250"][len(sys.argv) - 1 :])[:2])
    agents = subprocess.Popen([sys.executable, "-c", AGENTS], stdout=subprocess.PIPE)
    assert agents.stdout is not None
    try:
        asyncio.run(measure(pods, places, int(agents.stdout.readline())))
    finally:
        agents.kill()
        agents.wait()


if __name__ == "__main__":
    main()
