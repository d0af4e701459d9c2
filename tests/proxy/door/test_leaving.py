"""Callers that go away, at every step. Their place is free at once, and no pod is used for nothing."""

import asyncio
import contextlib
import socket
import struct

import pytest


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("kind", ["socket", "render", "named"])
async def test_leaving_while_held(farm, fakes, how, kind):
    caller = await _arrive(farm, kind)
    await farm.until(lambda: farm.counts().held == 1)
    getattr(caller, how)()
    async with asyncio.timeout(1):
        await farm.until(lambda: farm.counts().held == 0)
    pod = fakes.Pod("a", fakes.serve_render)
    await farm.add(pod)
    later = await farm.caller(farm.request("POST", "/render", b"{}"))
    assert (await later.answer())[0] == 200
    assert len(pod.shakes) == 1


BODIES = {
    "none": b"",
    "whole": b"Content-Length: 2\r\n\r\n{}",
    "announced": b"Content-Length: 2\r\n\r\n",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"], ids=["plain", "expect"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", ["/", "/render", "/leases"])
@pytest.mark.parametrize("free", [False, True], ids=["held", "free"])
async def test_a_request_whose_caller_is_already_gone_costs_no_dial(
    farm, fakes, free, kind, body, expect, how
):
    # Request and end reach the door together, as a caller's that gives up while the proxy is busy.
    pod = fakes.Pod("a")
    if free:
        await farm.add(pod)
    method = b"GET" if kind == "/" else b"POST"
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n" if kind == "/" else b""
    head = method + b" " + kind.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + upgrade + expect
    with socket.create_connection(farm.address) as sock:
        sock.sendall(head + (BODIES[body] or b"\r\n"))
        if how == "rst":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    door = farm.proxy.door
    quiet = len(farm.proxy.poller.handlers)
    seen = []
    accept = farm.proxy.listener._welcome
    farm.proxy.listener._welcome = lambda *each: (seen.append(each), accept(*each))
    async with asyncio.timeout(1):
        await farm.until(lambda: seen and not farm.proxy.driver.lease_requests and not len(door.heads))
        await farm.until(lambda: len(farm.proxy.poller.handlers) <= quiet)
    assert farm.counts().demand == 0
    if not free:
        await farm.add(pod)
    with contextlib.suppress(TimeoutError):  # time enough for a dial, were there one
        async with asyncio.timeout(0.05):
            await farm.until(lambda: pod.shakes)
    assert pod.shakes == []
    assert farm.count("farmproxy_leases_granted_total") == 0


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_named_lease_whose_caller_left_before_its_answer_ends_at_once(farm, fakes, how):
    left = asyncio.Event()

    async def leased(pod, shake):
        shake.accept(pod)  # the proxy finds the 101 and the caller's end in one look
        if how == "rst":
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()
        await shake.reader.read()
        left.set()

    await farm.add(fakes.Pod("a", leased))
    with socket.create_connection(farm.address) as caller:
        caller.sendall(farm.request("POST", "/leases", b"{}"))
        async with asyncio.timeout(1):
            await left.wait()
    await farm.idle()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("kind", ["socket", "render", "named"])
@pytest.mark.parametrize("step", ["silent", "preparing"])
async def test_leaving_during_the_dial_gives_the_pod_back_unused(farm, fakes, how, kind, step):
    closed = asyncio.Event()

    async def wait(pod, shake):
        if step == "preparing":
            shake.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await shake.reader.read()
        closed.set()

    pod = fakes.Pod("a", wait, fakes.serve_render)
    await farm.add(pod)
    caller = await _arrive(farm, kind)
    await farm.until(lambda: pod.shakes)
    getattr(caller, how)()
    async with asyncio.timeout(1):
        await closed.wait()
    await farm.until(lambda: farm.counts().pods["free"] == 1)
    assert farm.count("farmproxy_dials_total", result="abandoned") == 1
    later = await farm.caller(farm.request("POST", "/render", b"{}"))
    assert (await later.answer())[0] == 200


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_leaving_in_the_session_closes_the_pods_connection_at_once(farm, fakes, how):
    closed = asyncio.Event()

    async def wait(pod, shake):
        shake.accept(pod)
        await shake.read_request()
        shake.send(b"HTTP/1.1 101 X\r\n\r\n")
        await shake.reader.read()
        closed.set()

    await farm.add(fakes.Pod("a", wait))
    caller = await farm.upgrade()
    await caller.head()
    getattr(caller, how)()
    async with asyncio.timeout(1):
        await closed.wait()
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "done"


async def test_a_half_closed_caller_is_gone(farm, fakes):
    # FIN from a caller means gone, whatever it might still want to read
    await farm.add(fakes.Pod("a", fakes.hang))
    caller = await farm.upgrade()
    caller.writer.write_eof()
    assert await asyncio.wait_for(caller.reader.read(), 5) == b""
    await farm.idle()


async def test_early_bytes_are_kept_in_order(farm, fakes):
    caller = await farm.upgrade()
    early = bytes(range(256)) * 255  # a little less than the proxy keeps
    caller.send(early)
    await farm.until(lambda: farm.counts().held == 1)
    pod = fakes.Pod("a")
    await farm.add(pod)
    assert (await caller.head())[0] == 101
    assert await asyncio.wait_for(caller.reader.readexactly(len(early)), 10) == early


async def test_fin_is_noticed_behind_early_bytes(farm):
    caller = await farm.upgrade()
    caller.send(b"x" * 60_000)
    await farm.until(lambda: farm.counts().held == 1)
    caller.close()
    await farm.until(lambda: farm.counts().held == 0)


async def test_a_body_in_pieces_while_held(farm, fakes):
    body = b"b" * 200_000
    whole = farm.request("POST", "/render", body)
    caller = await farm.caller(whole[:-150_000])
    await farm.until(lambda: farm.counts().held == 1)
    caller.send(whole[-150_000:-10])
    pod = fakes.Pod("a", fakes.serve_render)
    await farm.add(pod)
    caller.send(whole[-10:])
    assert (await caller.answer())[2] == body


async def test_a_chunked_body_over_the_limit_is_refused_while_held(farm):
    head = farm.request("POST", "/render", Transfer_Encoding="chunked")
    caller = await farm.caller(head + b"10000\r\n" + b"x" * 0x10000)
    await farm.until(lambda: farm.counts().held == 1)
    for _ in range(5):
        caller.send(b"\r\n10000\r\n" + b"x" * 0x10000)
    assert await caller.refusal() == (413, "body-too-large")
    assert farm.counts().held == 0


async def test_expect_100_continue_is_answered_at_grant(farm, fakes):
    body = b"late"
    whole = farm.request("POST", "/render", body, Expect="100-continue")
    caller = await farm.caller(whole[: -len(body)])
    await farm.until(lambda: farm.counts().held == 1)
    pod = fakes.Pod("a", fakes.serve_render)
    await farm.add(pod)
    assert (await caller.head())[0] == 100
    caller.send(body)
    assert (await caller.answer())[2] == body
    assert b"xpect" not in pod.shakes[0].request


async def test_bytes_glued_to_the_head_go_on_first(farm, fakes):
    pod = fakes.Pod("a")
    await farm.add(pod)
    head = farm.request("GET", "/", Upgrade="websocket", Connection="Upgrade")
    caller = await farm.caller(head + b"glued")
    assert (await caller.head())[0] == 101
    caller.send(b"+more")
    assert await caller.reader.readexactly(10) == b"glued+more"


async def test_bodies_that_were_only_announced_shut_nobody_out(farm):
    for _ in range(300):
        await farm.caller(farm.request("POST", "/render", Content_Length="262144"))
    await farm.until(lambda: farm.counts().held == 300)
    await farm.upgrade()
    await farm.until(lambda: farm.counts().held == 301)


async def _arrive(farm, kind):
    if kind == "socket":
        return await farm.upgrade()
    return await farm.caller(farm.request("POST", "/render" if kind == "render" else "/leases", b"{}"))
