#!/usr/bin/env python3
"""Measure what a hot spare costs and saves: fresh start against swap, on real agents with a real Chromium.

Two agents run side by side and take jobs in turn, so that the machine's load meets both alike. Figures: how long a
pod is not free after a lease, how long until the next caller's first page has loaded, CPU-seconds a job (user and
system, of the agent's whole tree, the dead included), and PSS while a session runs. Run it from the repository:

    uv run python scripts/measure_recycle.py --jobs 10
"""

import argparse
import contextlib
import http.server
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

TICKS = os.sysconf("SC_CLK_TCK")
LIMIT_S = 60.0
PAGE = b"<!doctype html><title>page</title><h1>page</h1><script>document.title='ran'</script>"


class OnePage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Measured:
    not_free_s: list[float] = field(default_factory=list)
    page_s: list[float] = field(default_factory=list)
    pss_mib: list[float] = field(default_factory=list)
    cpu_s_a_job: float = 0.0


class Agent:
    """One agent process; ``mode`` is FARMAGENT_RECYCLE."""

    def __init__(self, mode: str, folder: Path, spare_after_s: float) -> None:
        self.mode = mode
        self.measured = Measured()
        env = os.environ | {
            "FARMAGENT_LISTEN": "127.0.0.1:0",
            "FARMAGENT_POD": f"measure/{mode}/{mode}",
            "FARMAGENT_RECYCLE": mode,
            "FARMAGENT_SPARE_AFTER_S": str(spare_after_s),
            "FARMAGENT_WORK_DIR": str(folder / mode),
        }
        self.process = subprocess.Popen([sys.executable, "-m", "farmagent"], env=env, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        first = json.loads(self.process.stdout.readline())
        while first["event"] != "listening":
            first = json.loads(self.process.stdout.readline())
        host, _, port = first["address"].rpartition(":")
        self.address = (host, int(port))
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def wait_free(self) -> None:
        with socket.create_connection(self.address, LIMIT_S) as sock:
            sock.sendall(f"GET /readyz?wait={LIMIT_S} HTTP/1.1\r\nHost: {self.address[0]}\r\n\r\n".encode())
            head = sock.recv(4096)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{self.mode}: not free after {LIMIT_S} s: {head!r}")

    def lease(self, lease: str) -> socket.socket:
        sock = socket.create_connection(self.address, LIMIT_S)
        head = f"GET /lease HTTP/1.1\r\nHost: {self.address[0]}\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\n"
        sock.sendall(f"{head}Farm-Lease: {lease}\r\n\r\n".encode())
        answer = sock.recv(4096)
        if b" 101 " not in answer:
            raise SystemExit(f"{self.mode}: no lease: {answer!r}")
        return sock

    def tree(self) -> list[int]:
        parents: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    parents.setdefault(parent, []).append(int(entry.name))
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += parents.get(pid, [])
        return found

    def cpu_s(self) -> float:
        """User and system of the tree, with what its dead children used."""
        ticks = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(int(word) for word in fields[11:15])
        return ticks / TICKS

    def pss_mib(self) -> float:
        kib = 0
        for pid in self.tree():
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                kib += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
        return kib / 1024


def first_page(socket_: ClientConnection, url: str) -> None:
    """As a CDP client does it: the page that is there, attached, navigated, loaded."""

    def send(
        number: int, method: str, params: dict[str, object], session: str | None = None
    ) -> dict[str, Any]:
        message: dict[str, object] = {"id": number, "method": method, "params": params}
        socket_.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while (answer := json.loads(socket_.recv(LIMIT_S))).get("id") != number:
            pass
        return dict(answer["result"])

    there = [one for one in send(1, "Target.getTargets", {})["targetInfos"] if one["type"] == "page"]
    target = there[0]["targetId"]
    session = send(2, "Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
    send(3, "Page.enable", {}, session)
    send(4, "Page.navigate", {"url": url}, session)
    while json.loads(socket_.recv(LIMIT_S)).get("method") != "Page.loadEventFired":
        pass


def job(agent: Agent, number: int, url: str, session_s: float) -> None:
    began = time.perf_counter()
    sock = agent.lease(f"J{number}")
    with connect("ws://farm/devtools/browser/farm", sock=sock, compression=None, proxy=None) as socket_:
        first_page(socket_, url)
        agent.measured.page_s.append(time.perf_counter() - began)
        time.sleep(session_s)
        agent.measured.pss_mib.append(agent.pss_mib())
        ended = time.perf_counter()
    agent.wait_free()
    agent.measured.not_free_s.append(time.perf_counter() - ended)


@contextlib.contextmanager
def page_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OnePage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10, help="jobs an agent")
    parser.add_argument(
        "--session-s", type=float, default=4.0, help="how long each session lasts after its page"
    )
    parser.add_argument("--spare-after-s", type=float, default=1.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fm-", ignore_cleanup_errors=True) as name, page_server() as url:
        folder = Path(name)
        folder.chmod(0o711)
        agents = [Agent(mode, folder, asked.spare_after_s) for mode in ("fresh", "spare")]
        try:
            measure(agents, asked.jobs, url, asked.session_s)
        finally:
            for agent in agents:
                agent.process.terminate()
            for agent in agents:
                agent.process.wait(LIMIT_S)
    report(agents, asked.jobs)


def measure(agents: list[Agent], jobs: int, url: str, session_s: float) -> None:
    for agent in agents:
        agent.wait_free()
        job(agent, 0, url, session_s)  # the first is warm-up: caches, and the first spare
        agent.measured = Measured()
    before = [agent.cpu_s() for agent in agents]
    for number in range(1, jobs + 1):
        for agent in agents if number % 2 else reversed(agents):
            job(agent, number, url, session_s)
    for agent, start_s in zip(agents, before, strict=True):
        agent.measured.cpu_s_a_job = (agent.cpu_s() - start_s) / jobs


def report(agents: list[Agent], jobs: int) -> None:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load}, {jobs} jobs each, median [min-max]")
    print(
        f"{'':6} {'not free s':>22} {'lease to first page s':>24} {'PSS MiB in session':>22} {'CPU-s a job':>12}"
    )
    for agent in agents:
        figures = agent.measured
        cells = [spread(figures.not_free_s, 3), spread(figures.page_s, 3), spread(figures.pss_mib, 0)]
        print(f"{agent.mode:6} {cells[0]:>22} {cells[1]:>24} {cells[2]:>22} {figures.cpu_s_a_job:>12.2f}")


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


if __name__ == "__main__":
    main()
