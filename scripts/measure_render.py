#!/usr/bin/env python3
"""Measure a render job: time and CPU, without a guard, behind the gate, and with every request intercepted.

One Chromium takes the ways in turn, so that the machine's load meets all alike. The page has 40 images that no
cache keeps. CPU is user and system: of Chrome's whole tree, and of this process (render, gate and page server).
"Intercepted" is a bare job with Fetch.enable on everything, each request continued by the client: the way of
guarding targets that the gate stands in for; "bare" is the same without. Run it from the repository:

    uv run python scripts/measure_render.py --jobs 10
"""

import argparse
import asyncio
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from farmagent.chrome import cdp
from farmagent.render import TargetPolicy, render

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_S = 0.3  # what a closed page still costs belongs to its job
IMAGES = 40
FLAGS = (
    "--headless=new --no-sandbox --no-first-run --no-startup-window --password-store=basic --disable-extensions "
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,PreloadTopChromeWebUI,SpareRendererForSitePerProcess "
    "--remote-debugging-port=0"
)
Job = Callable[[], Awaitable[None]]


@contextmanager
def chromium(binary: str) -> Iterator[tuple[int, str]]:
    """Process id and browser socket of a Chromium of one's own."""
    with tempfile.TemporaryDirectory(prefix="measure-render-", ignore_cleanup_errors=True) as home:
        words = [binary, *FLAGS.split(), f"--user-data-dir={home}"]
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        assert process.stderr is not None
        said = next(line for line in process.stderr if b"DevTools listening" in line)
        found = re.search(rb"ws://\S+", said)
        assert found is not None
        try:
            yield process.pid, found.group().decode()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tree_cpu_s(root: int) -> float:
    """CPU seconds of a process and all below it, the reaped included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))

    def below(pid: int) -> int:
        return ticks[pid] + sum(below(child) for child, parent in parents.items() if parent == pid)

    return below(root) / TICKS


async def bare(ws_url: str, url: str, *, intercept: bool) -> None:
    """The least a page costs over CDP: open, navigate, load event, its HTML, close."""
    async with cdp.connect(ws_url) as browser:
        if intercept:
            await browser.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})
        target = (await browser.send("Target.createTarget", {"url": "about:blank"}))["targetId"]
        session = await browser.attach(target)
        await browser.send("Page.enable", session_id=session)
        with browser.events() as events:
            await browser.post("Page.navigate", {"url": url}, session_id=session)
            async for event in events:
                if event.method == "Fetch.requestPaused":
                    paused = {"requestId": event.params["requestId"]}
                    await browser.post("Fetch.continueRequest", paused, session_id=event.session_id)
                elif event.method == "Page.loadEventFired":
                    break
        html = {"expression": "document.documentElement.outerHTML", "returnByValue": True}
        await browser.send("Runtime.evaluate", html, session_id=session)
        await browser.post("Target.closeTarget", {"targetId": target})


async def rendered(ws_url: str, url: str, kind: str, policy: TargetPolicy) -> None:
    answer = await render(ws_url, json.dumps({"url": url, "format": kind}).encode(), policy=policy)
    assert answer.status == 200, answer.body


def ways(ws_url: str, url: str) -> dict[str, Job]:
    found: dict[str, Job] = {
        "bare": lambda: bare(ws_url, url, intercept=False),
        "intercepted": lambda: bare(ws_url, url, intercept=True),
    }
    policies = {"open": TargetPolicy(everything=True), "gate": TargetPolicy.parse("127.0.0.1/32")}
    for kind in ("html", "png", "pdf"):
        for name, policy in policies.items():
            found[f"{kind}, {name}"] = lambda kind=kind, policy=policy: rendered(ws_url, url, kind, policy)  # type: ignore[misc]
    return found


async def serve() -> tuple[web.AppRunner, str]:
    image = os.urandom(20_000)

    async def page(_: web.Request) -> web.Response:
        body = "<p>lorem ipsum dolor</p>" * 200 + "".join(f"<img src=/{index}>" for index in range(IMAGES))
        return web.Response(text=f"<!DOCTYPE html><title>page</title>{body}", content_type="text/html")

    async def picture(_: web.Request) -> web.Response:
        return web.Response(body=image, content_type="image/png", headers={"Cache-Control": "no-store"})

    app = web.Application()
    app.add_routes([web.get("/page", page), web.get("/{name}", picture)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/page"


async def measure(jobs: int, binary: str) -> dict[str, list[tuple[float, float, float]]]:
    runner, url = await serve()
    found: dict[str, list[tuple[float, float, float]]] = {}
    with chromium(binary) as (pid, ws_url):
        for turn in range(jobs + 1):
            for name, job in ways(ws_url, url).items():
                chrome, own, began = tree_cpu_s(pid), time.process_time(), time.monotonic()
                await job()
                took = time.monotonic() - began
                own = time.process_time() - own
                await asyncio.sleep(SETTLE_S)
                if turn:  # the first of each warms up
                    found.setdefault(name, []).append((took, tree_cpu_s(pid) - chrome, own))
    await runner.cleanup()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10, help="rounds, after one that warms up")
    parser.add_argument("--chrome", default="/usr/lib/chromium/chromium")
    words = parser.parse_args()
    found = asyncio.run(measure(words.jobs, words.chrome))
    load = os.getloadavg()[0]
    print(f"{platform.release()}, {os.cpu_count()} CPUs, load {load:.1f}, {words.jobs} jobs each; medians\n")
    print("| job | s | Chrome CPU-s | render, gate and server CPU-s |\n|---|---|---|---|")
    for name, rows in found.items():
        took, chrome, own = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {name} | {took:.2f} | {chrome:.2f} | {own:.3f} |")


if __name__ == "__main__":
    main()
