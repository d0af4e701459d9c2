"""What runs out: holds, leases, stalls, idleness. Each ends with its own reason, and the counters go back to 0."""

import asyncio
import json
import socket
import time

import pytest

BULK = 50 * 1024 * 1024


async def serve_bulk(pod, shake):
    shake.accept(pod)
    await shake.read_request()
    shake.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BULK)
    piece = b"x" * 65536
    for _ in range(BULK // len(piece)):
        shake.send(piece)
        await shake.writer.drain()


async def slow_chunks(pod, shake):
    shake.accept(pod)
    await shake.read_request()
    shake.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        shake.send(b"1\r\nx\r\n")
        await shake.writer.drain()
        await asyncio.sleep(0.02)


async def silent(pod, shake):
    shake.accept(pod)
    await shake.read_request()
    await shake.reader.read()


@pytest.mark.parametrize("kind", ["render", "socket", "named"])
async def test_the_hold_limit_is_the_callers_own(new_farm, kind):
    # the answer comes at the limit, 503 with Retry-After and a reason, before any 101
    farm = new_farm()
    began_at = time.monotonic()
    if kind == "socket":
        caller = await farm.upgrade("/?hold=0.5")
    else:
        path = "/render" if kind == "render" else "/leases"
        caller = await farm.caller(farm.request("POST", path + "?hold=0.5", b"{}"))
    status, fields, body = await caller.answer()
    assert (status, json.loads(body)["reason"]) == (503, "hold-timeout")
    assert int(fields["retry-after"]) == json.loads(body)["retry_after_s"]
    assert 0.45 <= time.monotonic() - began_at < 1.5


async def test_hold_zero_and_the_queue_limit(new_farm):
    farm = new_farm(hold_limit=1)
    caller = await farm.upgrade("/?hold=0")
    assert await caller.refusal() == (503, "no-free-pod")
    await farm.upgrade()
    await farm.until(lambda: farm.counts().held == 1)
    caller = await farm.upgrade()
    assert await caller.refusal() == (429, "queue-full")


async def test_lease_max_before_any_answer_is_a_504(farm, fakes):
    await farm.add(fakes.Pod("a", silent))
    caller = await farm.caller(farm.request("POST", "/render?max=0.3", b"{}"))
    assert await caller.refusal() == (504, "lease-max")
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "max"


async def test_lease_max_in_an_answer_is_a_bare_close(farm, fakes):
    await farm.add(fakes.Pod("a", slow_chunks))
    caller = await farm.caller(farm.request("POST", "/render?max=0.3", b"{}"))
    assert (await caller.head())[0] == 200
    rest = await asyncio.wait_for(caller.reader.read(), 5)
    assert not rest.endswith(b"0\r\n\r\n")
    await farm.idle()
    assert farm.count("farmproxy_leases_ended_total", reason="max") == 1


async def test_a_reader_that_stopped_is_a_stall(new_farm, fakes):
    # 50 MB, the client reads 1 KB and stops; the slot returns, counters go back to 0
    farm = new_farm(stall_s=0.6)
    pod = fakes.Pod("a", serve_bulk, fakes.serve_render)
    await farm.add(pod)
    sock = await _stopped_reader(farm)
    await farm.until(lambda: farm.counts().leases == 1)
    await farm.idle()
    (line,) = farm.log.of("lease-ended")
    assert line["end"] == "stall"
    assert line["bytes_down"] < BULK
    assert farm.counts().demand == 0
    assert farm.proxy.relays.pipes.lent == 0
    later = await farm.caller(farm.request("POST", "/render", b"{}"))
    assert (await later.answer())[0] == 200
    sock.close()


async def test_a_slow_reader_is_no_stall(new_farm, fakes):
    farm = new_farm(stall_s=0.5)
    await farm.add(fakes.Pod("a", serve_bulk))
    sock = await _stopped_reader(farm)
    loop, got = asyncio.get_running_loop(), 0
    for _ in range(12):  # a little every 0.1 s: longer than the stall limit in all
        got += len(await loop.sock_recv(sock, 300_000))
        await asyncio.sleep(0.1)
    while data := await asyncio.wait_for(loop.sock_recv(sock, 1 << 20), 5):
        got += len(data)
    assert got + 1024 > BULK
    sock.close()
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "done"


async def test_a_pod_that_takes_nothing_is_lost(new_farm, fakes):
    farm = new_farm(stall_s=0.4)

    async def deaf(pod, shake):
        shake.writer.transport.pause_reading()
        shake.accept(pod)
        await asyncio.sleep(30)

    await farm.add(fakes.Pod("a", deaf))
    caller = await farm.upgrade()
    await farm.until(lambda: farm.counts().leases == 1)
    caller.send(b"x" * (32 << 20))
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] in {"pod-lost", "done"}
    assert farm.counts().leases == 0


async def test_the_idle_limit_counts_the_callers_bytes_only(new_farm, fakes):
    # opt-in; pings are bytes; what the pod says does not count
    farm = new_farm(lease_idle_s=0.8)

    async def chatty(pod, shake):
        shake.accept(pod)
        await shake.read_request()
        shake.send(b"HTTP/1.1 101 X\r\n\r\n")
        while not shake.reader.at_eof():
            shake.send(b"event")
            await asyncio.sleep(0.05)

    await farm.add(fakes.Pod("a", chatty))
    caller = await farm.upgrade()
    await caller.head()
    for _ in range(8):
        caller.send(b"ping")
        await asyncio.sleep(0.2)  # 1.6 s: twice the limit
    assert farm.counts().leases == 1
    quiet_since = time.monotonic()
    await farm.until(lambda: farm.counts().leases == 0)
    assert 0.5 < time.monotonic() - quiet_since < 3
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "idle"


async def test_without_an_idle_limit_silence_is_fine(farm, fakes):
    await farm.add(fakes.Pod("a"))
    caller = await farm.upgrade()
    await caller.head()
    await asyncio.sleep(0.6)  # some sweeps
    caller.send(b"after")
    assert await caller.reader.readexactly(5) == b"after"


async def test_idleness_of_a_named_lease_is_that_of_all_its_joins(new_farm, fakes):
    farm = new_farm(lease_idle_s=0.8)

    async def leased(pod, shake):
        shake.accept(pod)
        await shake.reader.read()

    pod = fakes.Pod("a", leased)
    pod.joins = fakes.serve_echo
    await farm.add(pod)
    api = await farm.caller(farm.request("POST", "/leases", b"{}"))
    told = json.loads((await api.answer())[2])
    path = told["urls"]["browser_ws"].partition(str(farm.address))[2]
    quiet, busy = await farm.upgrade(path), await farm.upgrade(path)
    for _ in range(8):
        busy.send(b"x")
        await asyncio.sleep(0.2)
    assert farm.counts().leases == 1
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "idle"
    quiet.close()


async def _stopped_reader(farm):
    """A caller that has read a little of a large answer and reads no more."""
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, tuple(farm.address))
    await loop.sock_sendall(sock, farm.request("POST", "/render", b"{}"))
    got = 0
    while got < 1024:
        got += len(await asyncio.wait_for(loop.sock_recv(sock, 1024 - got), 5))
    return sock
