#!/usr/bin/env python3
"""What a held caller costs the proxy, kind by kind: RSS a caller, and how many of N are taken before the rest are refused.

    .venv/bin/python scripts/measure_held.py [CALLERS]

The proxy runs in a process of its own, with no pods. The kernel's share is not in RSS: about 4 KiB a socket.
"""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

SERVE = """
import asyncio, structlog, sys
from farmproxy.observe import gc_tuning, logs
from farmproxy.proxy import Proxy
from farmproxy.config.parsers import HostPort
from farmproxy.config.settings import Settings
from farmproxy.config.tokens import Tokens

async def main():
    log = logs.configure(open("/dev/null", "wb"))
    settings = Settings(door=HostPort("127.0.0.1", 0), kube_api="http://127.0.0.1:1", hold_default_s=3000,
                        head_timeout_s=3000)
    proxy = Proxy(settings, Tokens("", "", log), log, descriptors=1_000_000)
    proxy.start()
    print(proxy.open_door().port, flush=True)
    await asyncio.Event().wait()

gc_tuning.settle()
try:
    import uvloop
    uvloop.run(main())
except ImportError:
    asyncio.run(main())
"""

_UPGRADE = (
    b"GET /devtools/browser HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
)
_RENDER = b"POST /render HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_NAME = b"POST /leases HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b"
_LARGE = 15_000

KINDS: dict[str, Callable[[], bytes]] = {
    "a connection that says nothing": lambda: b"",
    "upgrade": lambda: _UPGRADE + b"\r\n",
    "upgrade, one header of 15 KB": lambda: _UPGRADE + b"Cookie: " + b"x" * _LARGE + b"\r\n\r\n",
    "upgrade, 90 headers, 15 KB": lambda: (
        _UPGRADE + b"".join(b"X-%02d: %b\r\n" % (n, b"x" * 158) for n in range(90)) + b"\r\n"
    ),
    "upgrade, 60 KiB of early data": lambda: _UPGRADE + b"\r\n" + b"x" * 61_440,
    "render, chunked, 2 bytes": lambda: _RENDER + b"Transfer-Encoding: chunked\r\n\r\n2\r\n",
    "render, 256 KiB": lambda: _RENDER + b"Content-Length: 262144\r\n\r\n" + b"x" * 262_144,
    "render, 256 KiB declared, 2 sent": lambda: _RENDER + b"Content-Length: 262144\r\n\r\n{}",
    "POST /leases": lambda: _NAME % (2, b"{}"),
    "POST /leases, head of 15 KB": lambda: (
        b"POST /leases HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * _LARGE + b"\r\n\r\n"
    ),
    "half a head of 15 KB": lambda: _UPGRADE + b"Cookie: " + b"x" * _LARGE,
}


def rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def measure(kind: str, callers: int) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE) as proxy:
        assert proxy.stdout is not None
        try:
            tell(kind, callers, proxy.pid, int(proxy.stdout.readline()))
        finally:
            proxy.kill()


def tell(kind: str, callers: int, pid: int, port: int) -> None:
    data, before = KINDS[kind](), rss_kib(pid)
    with contextlib.ExitStack() as stack:
        socks = []
        for _ in range(callers):
            socks.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            with contextlib.suppress(ConnectionError):  # refused before it had said all
                socks[-1].sendall(data)
        time.sleep(3)  # for the last few to be read
        answers = Counter(answer_to(sock) for sock in socks)
        held = answers.pop("", 0)
        rss = rss_kib(pid)
    each = (rss - before) / max(1, held)
    refused = ", ".join(f"{number} x {status}" for status, number in answers.items()) or "none"
    print(f"{kind:34} {held:6} held, {each:6.1f} KiB each, RSS {rss / 1024:5.0f} MiB, refused: {refused}")


def answer_to(sock: socket.socket) -> str:
    """The status that this caller was refused with, empty while it is held."""
    try:
        return sock.recv(16, socket.MSG_DONTWAIT)[9:12].decode()
    except BlockingIOError:
        return ""
    except ConnectionError:
        return "reset"


def main() -> None:
    callers = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for kind in KINDS:
        measure(kind, callers)


if __name__ == "__main__":
    main()
