"""Callers that go away, at every step. Their place is free at once, and no pod is used for nothing."""

import asyncio

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


async def test_early_bytes_are_kept_in_order_and_bounded(farm, fakes):
    caller = await farm.upgrade()
    early = bytes(range(256)) * 1024  # 256 KiB, four times what the proxy keeps
    caller.send(early)
    await farm.until(lambda: farm.counts().held == 1)
    pod = fakes.Pod("a")
    await farm.add(pod)
    assert (await caller.head())[0] == 101
    assert await asyncio.wait_for(caller.reader.readexactly(len(early)), 10) == early


async def test_fin_is_noticed_behind_early_bytes(farm):
    # More than the proxy keeps, less than the kernel takes: FIN arrives behind unread bytes.
    caller = await farm.upgrade()
    caller.send(b"x" * 100_000)
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


async def test_the_hold_budget_of_bytes(farm):
    # 64 MiB in all; a body counts from the moment it is announced
    for _ in range(254):
        await farm.caller(farm.request("POST", "/render", Content_Length="262144"))
    await farm.until(lambda: farm.counts().held == 254)
    last = await farm.caller(farm.request("POST", "/render", Content_Length="262144"))
    assert await last.refusal() == (429, "queue-full")


async def _arrive(farm, kind):
    if kind == "socket":
        return await farm.upgrade()
    return await farm.caller(farm.request("POST", "/render" if kind == "render" else "/leases", b"{}"))
