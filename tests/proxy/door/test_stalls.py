"""The process itself stood still, or the wall clock was set: nobody else pays for it."""

import asyncio
import contextlib
import json
import socket
import threading
import time

import pytest


class Elsewhere:
    """A pod on a thread of its own: it goes on while the proxy's loop does not."""

    def __init__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address, self.port = self._listening.getsockname()
        self.asked = threading.Event()
        self.go = threading.Event()
        self.answered = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                with sock:
                    head = sock.recv(65536).decode()
                    if head.startswith("GET /lease "):
                        self._lease(sock, head)
                        return

    def _lease(self, sock, head):
        self.asked.set()
        self.go.wait(10)
        lease = head.partition("Farm-Lease: ")[2].split("\r\n")[0]
        sock.sendall(
            f"HTTP/1.1 101 X\r\nUpgrade: farm-lease\r\nFarm-Lease: {lease}\r\n"
            "Farm-Pod: farm/a/uid-a\r\n\r\n".encode()
        )
        self.answered.set()
        while sock.recv(65536):
            pass

    def stop(self):
        self._listening.close()


def stand_still(seconds):
    time.sleep(seconds)


@pytest.fixture
def elsewhere():
    pod = Elsewhere()
    yield pod
    pod.stop()


async def test_an_answer_that_came_while_the_proxy_stood_still_is_no_timeout(new_farm, fakes, elsewhere):
    farm = new_farm(handshake_timeout_s=0.5, head_timeout_s=0.5)
    seen = fakes.Pod("a").seen()
    farm.tell(type(seen)("uid-a", "a", elsewhere.address, elsewhere.port, True, False))
    caller = await farm.upgrade()
    half = await farm.caller(b"GET /json HTTP/1.1\r\n")
    await farm.until(elsewhere.asked.is_set)
    elsewhere.go.set()
    elsewhere.answered.wait(10)
    half.send(b"Host: 127.0.0.1\r\n\r\n")
    stand_still(1.0)  # both limits pass while what they wait for lies in the kernel
    farm.proxy._sweeping.cancel()
    farm.proxy._sweep()
    assert [line for line in farm.log.lines if line["event"] == "set-aside"] == []
    assert farm.counts().leases == 1
    assert farm.count("farmproxy_dials_total", result="timeout") == 0
    assert (await half.answer())[0] == 200
    assert farm.count("farmproxy_loop_stall_seconds_count") == 1
    assert 0.5 < farm.count("farmproxy_loop_stall_seconds_sum") < 10
    caller.close()


async def test_a_deadline_of_a_hold_is_judged_after_what_has_come(new_farm, fakes, elsewhere):
    farm = new_farm(recycle_s=30.0)
    pod = fakes.Pod("b", fakes.busy("busy"))
    pod.free.clear()
    await farm.add(pod)
    caller = await farm.upgrade("/?hold=1")
    await farm.until(lambda: pod.asked)
    pod.scripts = [fakes.serve_echo]
    pod.free.set()
    await asyncio.sleep(0)  # the pod answers
    await asyncio.sleep(0)
    stand_still(1.2)
    farm.proxy._wake()
    assert (await caller.head())[0] == 101


@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_a_wall_clock_that_is_set_changes_no_duration(farm, fakes, monkeypatch, step_s):
    joined = []

    async def join(pod, shake):
        joined.append(shake.fields)
        await fakes.serve_echo(pod, shake)

    async def leased(pod, shake):
        shake.accept(pod)
        await shake.reader.read()

    pod = fakes.Pod("a", leased)
    pod.joins = join
    await farm.add(pod)
    api = await farm.caller(farm.request("POST", "/leases?max=600", b"{}"))
    told = json.loads((await api.answer())[2])
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step_s)
    path = told["urls"]["browser_ws"].partition(str(farm.address))[2]
    caller = await farm.upgrade(path)
    assert (await caller.head())[0] == 101
    assert 590 <= int(joined[0]["farm-lease-max-s"]) <= 600
    api.send(farm.request("GET", f"/leases/{told['id']}"))
    shown = json.loads((await api.answer())[2])["expires_at"]
    left_s = time.mktime(time.strptime(shown[:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.gmtime())
    assert 580 <= left_s - step_s <= 600
