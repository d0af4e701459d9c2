"""A farm made of nothing: a testbed that notes what is asked of it, an admin port that says what it is told."""

import asyncio
import json

import pytest
from aiohttp import web

from farmctl.testbeds.base import Setup


class FakeTestbed:
    """Implements the verbs the engine itself uses; every call is noted in ``calls``."""

    kind = "fake"
    namespace = "farm"
    pages_host = "127.0.0.1"

    def __init__(self, door, admin):
        self.door = door
        self.admin = admin
        self.cannot = {}
        self.calls = []
        self.pod_lines = {}
        self.proxy_lines = []
        self.restore_fails = None

    async def setup(self):
        return Setup(pods=4)

    async def restore(self):
        self.calls.append("restore")
        if self.restore_fails:
            raise self.restore_fails

    async def scale(self, pods):
        self.calls.append(f"scale {pods}")

    async def pods(self):
        return []

    async def pod_logs_since(self, mark):
        return self.pod_lines

    async def proxy_log_since(self, mark):
        return self.proxy_lines


def pool_status(*, free=4, held=(), leases=()):
    pods = [
        {
            "uid": f"u{n}",
            "name": f"p{n}",
            "address": f"127.0.1.{n}:9222",
            "state": "free" if n <= free else "leased",
            "terminating": False,
            "lease": None,
            "faults": 0,
            "set_aside_s": 0,
        }
        for n in range(1, 5)
    ]
    waiting = [{"id": h, "label": h, "waited_s": 0, "left_s": 1, "dials": 0} for h in held]
    running = [{"id": x, "label": x, "pod": "p1", "age_s": 0, "left_s": 1} for x in leases]
    return {"service": "browsers", "demand": 0, "pods": pods, "held": waiting, "leases": running}


class FakeAdmin:
    pool_with = staticmethod(pool_status)

    def __init__(self):
        self.pool = pool_status()
        self.metrics = '# HELP x\nfarmproxy_dials_total{result="refused"} 0\n'
        self.url = ""

    async def status(self, _request):
        pools = {"default": self.pool}
        return web.json_response({"version": "0", "draining": False, "watch_age_s": 0.1, "pools": pools})

    async def show_metrics(self, _request):
        return web.Response(text=self.metrics)


@pytest.fixture
async def admin():
    fake = FakeAdmin()
    app = web.Application()
    app.add_routes([web.get("/status", fake.status), web.get("/metrics", fake.show_metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield fake
    await runner.cleanup()


class FakeDoor:
    """Answers each WebSocket upgrade as ``answer`` says; ``sessions`` are the writers of those that got the 101."""

    def __init__(self):
        self.heads = []
        self.sessions = []
        self.refusal = None
        self.holds = False
        self.url = ""

    async def serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if self.holds:
                await reader.read(1)  # until the caller goes
                return
            if self.refusal:
                status, body = self.refusal
                text = json.dumps(body)
                writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
                return
            number = len(self.sessions) + 1
            writer.write(
                f"HTTP/1.1 101 Switching Protocols\r\nFarm-Lease: L{number}\r\nFarm-Pod: farm/p1/u1\r\n"
                "Farm-Waited-Ms: 5\r\nFarm-Dials: 2\r\n\r\n".encode()
            )
            self.sessions.append(writer)
            while await reader.read(1024):
                writer.write(
                    b'\x81\x12{"id":1,"result":{}}'.replace(b"\x12", bytes([len('{"id":1,"result":{}}')]))
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def door():
    fake = FakeDoor()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    yield fake
    server.close()


@pytest.fixture
def testbed(door, admin):
    return FakeTestbed(door.url, admin.url)
