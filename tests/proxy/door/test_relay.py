"""The relay between two real sockets: order, backpressure, bulk, both directions, vanished sides."""

import asyncio
import contextlib
import hashlib
import os
import socket
import time

import pytest
from farmproxy.net.poller import READ, Poller
from farmproxy.tunnel import lingering_close, tunnels
from farmproxy.tunnel.lingering_close import LingeringClose
from farmproxy.tunnel.tunnels import RelayDesk, Tunnel
from farmwire.reasons import End


class Told:
    bytes_up = 0
    bytes_down = 0


class Pair:
    """A tunnel between two loopback connections; ``caller`` and ``pod`` are the far ends."""

    def __init__(self, clock=None, **limits):
        self.now = 0.0
        clock = clock or (lambda: self.now)
        self.bugs = []
        self.poller = Poller(lambda error, handler: self.bugs.append(error))
        self.told = Told()
        self.lingering_close = LingeringClose(self.poller, clock)
        limits = {"stall_s": 60, "keepalive_s": 15, "idle_s": 0, **limits}
        self.desk = RelayDesk(self.poller, self.lingering_close, self.told, clock, **limits)
        self.ended = []
        self.caller, near_caller = connected()
        self.pod, near_pod = connected()
        for sock in (near_caller, near_pod):
            self.poller.watch(sock, READ, print)
        self.tunnel = Tunnel(
            self.desk, near_caller, near_pod, lambda end, kept: self.ended.append((end, kept))
        )

    def start(self, sent=0, pending=b""):
        self.poller.start(asyncio.get_running_loop())
        self.tunnel.start(sent, pending)
        return self

    async def until_ended(self):
        async with asyncio.timeout(10):
            while not self.ended:
                await asyncio.sleep(0.005)
        return self.ended[0]

    def stop(self):
        for sock in (self.caller, self.pod):
            sock.close()
        self.desk.pipes.close()
        self.poller.stop()
        assert self.bugs == []


def connected():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        far = socket.socket()
        far.connect(listening.getsockname())
        near, _ = listening.accept()
    far.setblocking(False)
    near.setblocking(False)
    return far, near


@pytest.fixture
async def new_pair():
    pairs = []

    def make(*args, **kwargs):
        pairs.append(Pair(*args, **kwargs))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.stop()


async def read_all(sock, size=1 << 20, pause=0.0):
    digest, total = hashlib.sha256(), 0
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(sock, size):
        digest.update(data)
        total += len(data)
        if pause:
            await asyncio.sleep(pause)
    return total, digest.hexdigest()


@pytest.mark.parametrize("size", [1, 500, 65536, 1 << 20])
@pytest.mark.parametrize("up", [True, False])
async def test_bytes_arrive_whole_and_in_order(new_pair, size, up):
    pair = new_pair().start()
    loop = asyncio.get_running_loop()
    source, sink = (pair.caller, pair.pod) if up else (pair.pod, pair.caller)
    piece = os.urandom(size)
    count = max(2, min(300, (24 << 20) // size))
    reading = asyncio.gather(read_all(sink))
    for _ in range(count):
        await loop.sock_sendall(source, piece)
    source.shutdown(socket.SHUT_WR)
    ((total, digest),) = await asyncio.wait_for(reading, 30)
    assert total == size * count
    assert digest == hashlib.sha256(piece * count).hexdigest()
    assert (await pair.until_ended())[0] is End.DONE
    assert (pair.told.bytes_up, pair.told.bytes_down) == ((total, 0) if up else (0, total))
    assert pair.tunnel.bytes_up + pair.tunnel.bytes_down == total


async def test_bulk_uses_a_pipe_only_while_it_flows(new_pair):
    pair = new_pair().start()
    loop = asyncio.get_running_loop()
    reading = asyncio.gather(read_all(pair.caller))
    for _ in range(64):
        await loop.sock_sendall(pair.pod, b"x" * (1 << 20))
    assert pair.desk.pipes.lent == 1
    for _ in range(200):
        await loop.sock_sendall(pair.pod, b"small")
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while pair.desk.pipes.lent:
            await loop.sock_sendall(pair.pod, b"small")
            await asyncio.sleep(0.001)
    pair.pod.close()
    await reading
    assert pair.desk.pipes.open <= 2


async def test_without_pipes_bulk_is_copied(new_pair, monkeypatch):
    pair = new_pair().start()
    monkeypatch.setattr(type(pair.desk.pipes), "lend", lambda self: None)
    loop = asyncio.get_running_loop()
    reading = asyncio.gather(read_all(pair.caller))
    await loop.sock_sendall(pair.pod, b"x" * (16 << 20))
    pair.pod.close()
    assert (await reading)[0][0] == 16 << 20


async def test_a_slow_reader_costs_no_memory(new_pair):
    pair = new_pair().start()
    loop = asyncio.get_running_loop()
    sending = asyncio.gather(loop.sock_sendall(pair.pod, b"x" * (64 << 20)))
    async with asyncio.timeout(5):
        while not pair.tunnel._down.waits:
            await asyncio.sleep(0.005)
    waiting = len(pair.tunnel._down._pending)
    assert waiting <= 65536
    reading = asyncio.gather(read_all(pair.caller))
    await sending
    pair.pod.close()
    assert (await reading)[0][0] == 64 << 20


async def test_both_directions_at_once(new_pair):
    pair = new_pair().start()
    loop = asyncio.get_running_loop()
    data = os.urandom(8 << 20)

    async def send(sock):
        await loop.sock_sendall(sock, data)

    async def take(sock):
        got = 0
        while got < len(data):
            got += len(await loop.sock_recv(sock, 1 << 20))
        return got

    results = await asyncio.wait_for(
        asyncio.gather(send(pair.caller), send(pair.pod), take(pair.caller), take(pair.pod)), 30
    )
    assert results[2:] == [len(data), len(data)]


async def test_what_was_read_from_a_caller_that_left_is_still_written(new_pair):
    pair = new_pair().start(pending=b"p" * 100_000)
    pair.caller.close()
    total, _ = await asyncio.wait_for(read_all(pair.pod), 5)
    assert total == 100_000
    assert await pair.until_ended() == (End.DONE, False)


async def test_a_caller_that_left_does_not_keep_a_pod_from_reading(new_pair):
    # The pod reads only once what it says is taken, and nobody is there to take it.
    pair = new_pair().start()
    loop = asyncio.get_running_loop()
    sent = asyncio.gather(loop.sock_sendall(pair.pod, b"d" * (32 << 20)))
    async with asyncio.timeout(5):
        # In small pieces: the caller's FIN gets through only while the proxy's receive buffer has room.
        while not (pair.tunnel._up.waits and pair.tunnel._down.waits):
            if not pair.tunnel._up.waits:
                await loop.sock_sendall(pair.caller, b"u" * (32 << 10))
            await asyncio.sleep(0)
    pair.caller.shutdown(socket.SHUT_WR)
    await asyncio.wait_for(sent, 10)
    total = 0
    with contextlib.suppress(ConnectionResetError):  # what the pod says last is not read by anybody
        async with asyncio.timeout(10):
            while data := await loop.sock_recv(pair.pod, 1 << 20):
                total += len(data)
    assert total == pair.told.bytes_up > 0
    assert await pair.until_ended() == (End.DONE, False)


async def test_a_pod_that_answered_and_closed_before_it_read_all(new_pair):
    # Its answer reaches the caller although the caller's body can no longer be delivered.
    pair = new_pair().start()
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(pair.pod, b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")
    answer = await loop.sock_recv(pair.caller, 100)
    assert answer.startswith(b"HTTP/1.1 413")
    pair.pod.shutdown(socket.SHUT_WR)
    assert (await pair.until_ended())[0] is End.DONE
    total, _ = await asyncio.wait_for(read_all(pair.caller), 5)
    assert total == 0


@pytest.mark.parametrize("answered", [True, False])
async def test_a_reset_pod(new_pair, answered):
    pair = new_pair().start()
    loop = asyncio.get_running_loop()
    if answered:
        await loop.sock_sendall(pair.pod, b"a")
        assert await loop.sock_recv(pair.caller, 1) == b"a"
    pair.pod.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    pair.pod.close()
    assert await pair.until_ended() == (End.POD_LOST, not answered)
    assert pair.tunnel.by_pod
    if answered:
        with pytest.raises(ConnectionResetError):
            await loop.sock_recv(pair.caller, 1)


async def test_a_caller_that_vanished_is_caller_lost(new_pair, monkeypatch):
    # keepalive gave the caller up
    pair = new_pair().start()
    pair.tunnel._caller_broke(110)
    assert pair.ended == [(End.CALLER_LOST, False)]
    assert not pair.tunnel.by_pod


@pytest.mark.parametrize(("side", "end"), [(0, End.CALLER_LOST), (1, End.POD_LOST)])
async def test_a_side_that_acknowledges_nothing_is_given_up_after_two_looks(new_pair, monkeypatch, side, end):
    # with data under way: keepalive does not run then
    pair = new_pair(keepalive_s=15).start()
    silent = [pair.tunnel.caller, pair.tunnel.pod][side]
    monkeypatch.setattr(
        tunnels, "unheard_s", lambda sock: (True, 16.0 + pair.now) if sock is silent else (False, 0.0)
    )
    pair.now = 15.1
    pair.desk.sweep()
    assert pair.ended == []
    pair.now = 30.3
    pair.desk.sweep()
    assert pair.ended[0][0] is end


async def test_a_silent_but_answered_side_is_never_suspected(new_pair, monkeypatch):
    pair = new_pair(keepalive_s=15).start()
    answers = iter(
        [(True, 16.0), (False, 0.0), (False, 400.0), (False, 400.0), (True, 20.0), (True, 1.0)]
        + [(False, 0.0)] * 20
    )
    monkeypatch.setattr(tunnels, "unheard_s", lambda sock: next(answers))
    for _ in range(6):
        pair.now += 15.1
        pair.desk.sweep()
    assert pair.ended == []


async def test_stall_and_vanished_are_told_apart(new_pair, monkeypatch):
    for silent_s, end in ((1.0, End.STALL), (100.0, End.CALLER_LOST)):
        pair = new_pair(stall_s=8, keepalive_s=15).start()
        loop = asyncio.get_running_loop()
        sending = asyncio.gather(loop.sock_sendall(pair.pod, b"x" * (64 << 20)), return_exceptions=True)
        async with asyncio.timeout(5):
            while not pair.tunnel._down.waits:
                await asyncio.sleep(0.005)
        monkeypatch.setattr(tunnels, "unheard_s", lambda sock, silent_s=silent_s: (False, silent_s))
        monkeypatch.setattr(tunnels, "queued_bytes", lambda sock: 1000)
        for _ in range(12):
            pair.now += 1.01
            pair.desk.sweep()
        assert pair.ended[0][0] is end
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_a_session_that_lasts_has_keepalive_on_its_pod_too(new_pair):
    # with nothing under way: only keepalive finds a pod that vanished
    pair = new_pair(keepalive_s=15).start()
    pair.now = 15.1
    pair.desk.sweep()
    pod = pair.tunnel.pod
    assert pod.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert pod.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15


# Lingering close: a caller that is still sending reads its answer


async def too_large(pod, shake):
    """Answers when it has read the head, takes what comes and closes: as a good agent does."""
    if "farm-join" not in shake.fields:
        shake.accept(pod)
    await shake.read_request()
    shake.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await shake.writer.drain()


def send_all_then_read(address, head, pieces, pause_s):
    """A plain blocking client."""
    with socket.create_connection(address) as sock:
        sock.sendall(head)
        for piece in pieces:
            time.sleep(pause_s)
            sock.sendall(piece)
        return sock.recv(65536)


@pytest.mark.parametrize("way", ["pod", "chunked to a pod", "refused"])
async def test_a_caller_that_is_still_sending_reads_its_413(farm, fakes, way):
    farm.proxy.lingering_close._silence.after_s = 0.5
    await farm.add(fakes.Pod("a", too_large))
    if way == "chunked to a pod":
        head = farm.request("POST", "/render", Transfer_Encoding="chunked")
    elif way == "pod":
        head = farm.request("POST", "/render", b"x" * 250_000)[:-250_000]
    else:
        head = farm.request("POST", "/render", b"x" * 600_000)[:-600_000]
    # Longer than the linger time in all, so that only one who goes on sending is waited for.
    pieces = [b"c350\r\n" + b"x" * 50_000 + b"\r\n"] * 12 if "chunked" in way else [b"x" * 20_000] * 12
    got = await asyncio.to_thread(send_all_then_read, tuple(farm.address), head, pieces, 0.1)
    assert got.startswith(b"HTTP/1.1 413 ")
    await farm.until(lambda: len(farm.proxy.lingering_close) == 0)


async def test_lingering_closes_are_bounded_in_number(farm, monkeypatch):
    monkeypatch.setattr(lingering_close, "MOST", 2)
    first, second, third = [await farm.caller(farm.request("GET", "/nowhere")) for _ in range(3)]
    for caller in (first, second, third):
        assert (await caller.answer())[0] == 404
    await farm.until(lambda: len(farm.proxy.lingering_close) == 2)


async def test_lingering_closes_are_bounded_in_time_whatever_is_sent(farm):
    farm.proxy.lingering_close._longest.after_s = 0.3
    caller = await farm.caller(farm.request("GET", "/nowhere"))
    assert (await caller.answer())[0] == 404
    async with asyncio.timeout(10):
        while len(farm.proxy.lingering_close):
            caller.send(b"x")
            await asyncio.sleep(0.02)
