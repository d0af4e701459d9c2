"""What pods do wrong: seen only in Farm-Dials and the metrics before the session, at once and never replayed after."""

import asyncio

import pytest

TEMPLATE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: farm-lease\r\nConnection: Upgrade\r\n"


async def reset(pod, shake):
    shake.reset()


async def close(pod, shake):
    return


async def accept_and_close(pod, shake):
    shake.accept(pod)


async def accept_and_speak(pod, shake):
    shake.accept(pod)
    shake.send(b"HTTP/1.1 200 OK\r\n\r\n")
    await shake.reader.read()


async def wrong_uid(pod, shake):
    shake.accept(pod, Farm_Pod="farm/a/other-uid")
    await shake.reader.read()


async def wrong_lease(pod, shake):
    shake.accept(pod, Farm_Lease="01M8NWAAWR7VZ1W090NQPYFS4R")
    await shake.reader.read()


async def no_pod(pod, shake):
    shake.accept(pod, Farm_Pod=None)
    await shake.reader.read()


async def half_an_answer(pod, shake):
    shake.send(b"HTTP/1.1 101 Swit")


async def preparing_then_close(pod, shake):
    shake.send(b"HTTP/1.1 102 Processing\r\n\r\n")


async def silence(pod, shake):
    await shake.reader.read()


async def silent_after_102(pod, shake):
    shake.send(b"HTTP/1.1 102 Processing\r\n\r\n")
    await shake.reader.read()


async def prepare_for_ever(pod, shake):
    while True:
        shake.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(0.1)


def raw(fakes, data):
    return fakes.answer(data)


FAULTS = {
    "reset": (reset, "refused"),
    "close": (close, "refused"),
    "accept-and-speak": (accept_and_speak, "garbage"),
    "wrong-uid": (wrong_uid, "wrong-pod"),
    "wrong-lease": (wrong_lease, "garbage"),
    "no-pod": (no_pod, "garbage"),
    "half": (half_an_answer, "broken"),
    "102-close": (preparing_then_close, "broken"),
    "silence": (silence, "timeout"),
    "102-silence": (silent_after_102, "timeout"),
    "102-for-ever": (prepare_for_ever, "timeout"),
    # the address belongs to another workload now
    "200": (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", "garbage"),
    "404": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "garbage"),
    "500": (b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", "garbage"),
    "websocket": (TEMPLATE.replace(b"farm-lease", b"websocket") + b"\r\n", "garbage"),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", "garbage"),
    "http-1.0": (b"HTTP/1.0 101 X\r\n\r\n", "garbage"),
    "endless": (b"HTTP/1.1 101 X\r\n" + b"x" * 20000, "garbage"),
    "409-unknown": (b'HTTP/1.1 409 X\r\nContent-Length: 18\r\n\r\n{"reason": "tired"', "garbage"),
    "409-no-json": (b"HTTP/1.1 409 X\r\nContent-Length: 4\r\n\r\nbusy", "garbage"),
    "409-cut": (b"HTTP/1.1 409 X\r\nContent-Length: 400\r\n\r\n{", "broken"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_sets_the_pod_aside_and_nobody_notices(new_farm, fakes, fault):
    script, result = FAULTS[fault]
    farm = new_farm(handshake_timeout_s=0.3, prepare_timeout_s=0.5, set_aside_s=30)
    bad = fakes.Pod("bad", fakes.answer(script) if isinstance(script, bytes) else script)
    bad.free.clear()
    good = fakes.Pod("good")
    await farm.add(bad)
    caller = await farm.upgrade()
    await farm.until(lambda: farm.count("farmproxy_dials_total", result=result) == 1)
    await farm.add(good)
    assert (await caller.head())[0] == 101
    assert good.shakes[0].fields["farm-dials"] == "2"
    assert farm.counts().pods["set-aside"] == 1
    (line,) = farm.log.of("set-aside")
    assert (line["pod"], line["result"]) == ("bad", result)
    assert 29 < line["for_s"] <= 30
    assert len(bad.shakes) == 1


async def test_a_pod_that_closes_with_its_101_gets_no_byte(new_farm, fakes):
    farm = new_farm(set_aside_s=30)
    bad, good = fakes.Pod("bad", accept_and_close), fakes.Pod("good")
    bad.free.clear()
    await farm.add(bad)
    caller = await farm.upgrade()
    await farm.until(lambda: farm.count("farmproxy_dials_total", result="broken") == 1)
    await farm.add(good)
    assert (await caller.head())[0] == 101


async def test_a_refused_connection_is_absorbed(new_farm, fakes):
    # Chrome listens later than its slice says
    farm = new_farm(set_aside_s=0.2)
    pod = await fakes.Pod("a").start()
    await pod.stop()
    await farm.add(pod)
    sockets = await farm.upgrade()
    render = await farm.caller(farm.request("POST", "/render", b"{}"))
    await farm.until(lambda: farm.counts().demand == 2)
    assert farm.count("farmproxy_dials_total", result="refused") >= 1
    pod.scripts = [fakes.serve_echo, fakes.serve_render]
    await pod.start()
    assert (await sockets.head())[0] == 101
    sockets.close()
    assert (await render.answer())[0] == 200


async def test_an_address_that_swallows_packets_runs_into_the_connect_timeout(new_farm, fakes):
    farm = new_farm(connect_timeout_s=0.3, set_aside_s=30)
    import socket

    # A full backlog: the kernel drops further SYNs.
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        first.connect(address)
        second.setblocking(False)
        second.connect_ex(address)
        pod = fakes.Pod("a")
        pod.address, pod.port = address
        farm.tell(pod.seen())
        caller = await farm.upgrade()
        await farm.until(lambda: farm.count("farmproxy_dials_total", result="timeout") == 1)
        await farm.add(fakes.Pod("good"))
        assert (await caller.head())[0] == 101


@pytest.mark.parametrize("reason", ["busy", "recycling", "starting", "draining"])
async def test_a_409_tells_the_pods_state_and_is_no_fault(new_farm, fakes, reason):
    # a new proxy does not know who is busy; the pod refuses and the caller is re-queued
    farm = new_farm(set_aside_s=30)
    pod = fakes.Pod("a", fakes.busy(reason), fakes.serve_echo)
    pod.free.clear()
    await farm.add(pod)
    caller = await farm.upgrade()
    await farm.until(lambda: farm.counts().pods["unready"] == 1 and farm.counts().held == 1)
    assert farm.counts().pods["set-aside"] == 0
    assert farm.log.of("set-aside") == []
    pod.free.set()
    if reason == "draining":
        farm.tell(pod.seen(ready=False))
        farm.tell(pod.seen(fresh_ready=True))
    assert (await caller.head())[0] == 101
    assert pod.shakes[1].fields["farm-dials"] == "2"


async def test_a_4xx_of_scope_caller_goes_to_the_caller(farm, fakes):
    told = {"reason": "profile-busy", "scope": "caller", "detail": "p"}
    pod = fakes.Pod("a", fakes.answer(fakes.json_answer(409, told)), fakes.serve_render)
    await farm.add(pod)
    caller = await farm.caller(farm.request("POST", "/render", b"{}"))
    status, _, body = await caller.answer()
    assert status == 409
    assert b"profile-busy" in body
    assert await caller.reader.read() == b""
    await farm.idle()
    caller = await farm.caller(farm.request("POST", "/render", b"{}"))
    assert (await caller.answer())[0] == 200


@pytest.mark.parametrize("split", [1, 7, 10_000])
async def test_a_slow_agent_that_says_102_is_waited_for(new_farm, fakes, split):
    farm = new_farm(handshake_timeout_s=0.4, prepare_timeout_s=20)

    async def slow(pod, shake):
        for _ in range(3):
            shake.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.25)
        whole = (
            TEMPLATE
            + f"Farm-Lease: {shake.fields['farm-lease']}\r\nFarm-Pod: farm/a/{pod.uid}\r\n\r\n".encode()
        )
        for at in range(0, len(whole), split):
            shake.send(whole[at : at + split])
            await asyncio.sleep(0)
        await shake.read_request()
        shake.send(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    await farm.add(fakes.Pod("a", slow))
    caller = await farm.upgrade()
    assert (await caller.head())[0] == 204
    assert farm.count("farmproxy_dials_total", result="leased") == 1


async def test_farm_waited_ms_is_the_whole_wait(new_farm, fakes):
    farm = new_farm()
    caller = await farm.upgrade()
    await farm.until(lambda: farm.counts().held == 1)
    await asyncio.sleep(0.2)  # the time itself is what is measured
    pod = fakes.Pod("a")
    await farm.add(pod)
    await caller.head()
    assert 190 <= int(pod.shakes[0].fields["farm-waited-ms"]) < 5000


# --- the pod dies in a session


async def die_before_answering(pod, shake):
    shake.accept(pod)
    await shake.read_request()
    shake.reset()


async def close_before_answering(pod, shake):
    shake.accept(pod)
    await shake.read_request()


async def die_in_the_body(pod, shake):
    shake.accept(pod)
    await shake.read_request()
    shake.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    await shake.writer.drain()
    await pod.go.wait()
    shake.reset()


async def die_in_the_socket(pod, shake):
    shake.accept(pod)
    await shake.read_request()
    shake.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    await pod.go.wait()


@pytest.mark.parametrize("script", [die_before_answering, close_before_answering])
@pytest.mark.parametrize("kind", ["render", "socket"])
async def test_a_pod_lost_before_the_answer_is_a_502_and_nothing_is_replayed(farm, fakes, script, kind):
    pod, other = fakes.Pod("a", script), fakes.Pod("b")
    await farm.add(pod)
    if kind == "render":
        caller = await farm.caller(farm.request("POST", "/render", b"{}"))
    else:
        caller = await farm.upgrade()
    await farm.until(lambda: pod.shakes)
    await farm.add(other)
    assert await caller.refusal() == (502, "pod-lost")
    assert other.shakes == []
    await farm.idle()
    assert len(pod.shakes) == 1


async def test_an_aborted_body_does_not_look_complete(farm, fakes):
    pod = fakes.Pod("a", die_in_the_body)
    pod.go = asyncio.Event()
    await farm.add(pod)
    caller = await farm.caller(farm.request("POST", "/render", b"{}"))
    assert (await caller.head())[0] == 200
    assert await caller.reader.readexactly(4) == b"half"
    pod.go.set()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(caller.reader.read(), 5)


async def test_a_dead_pods_websocket_is_closed_at_once(farm, fakes):
    pod = fakes.Pod("a", die_in_the_socket)
    pod.go = asyncio.Event()
    pod.end = "browser-died"
    await farm.add(pod)
    caller = await farm.upgrade()
    assert (await caller.head())[0] == 101
    pod.go.set()
    async with asyncio.timeout(1):
        assert await caller.reader.read() == b""
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "browser-died"
    assert farm.count("farmproxy_leases_ended_total", reason="browser-died") == 1


async def test_a_pod_that_is_gone_is_pod_lost(farm, fakes):
    pod = fakes.Pod("a")
    await farm.add(pod)
    caller = await farm.upgrade()
    await caller.head()
    await pod.stop()
    await caller.reader.read()
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "pod-lost"


async def test_terminating_or_disappearing_ends_no_session(farm, fakes):
    pod = fakes.Pod("a")
    await farm.add(pod)
    caller = await farm.upgrade()
    await caller.head()
    farm.tell(pod.seen(terminating=True))
    farm.tell(gone=[pod.uid])
    caller.send(b"still")
    assert await caller.reader.readexactly(5) == b"still"
    caller.close()
    await farm.idle()


async def test_a_pod_without_target_ref_is_known_by_its_address(farm, fakes):
    pod = await fakes.Pod("a").start()
    farm.pods.append(pod)
    farm.tell(pod.seen(uid=False))
    caller = await farm.upgrade()
    assert (await caller.head())[0] == 101


async def test_a_101_that_came_before_the_prepare_limit_was_looked_at_counts(new_farm, fakes):
    farm = new_farm(handshake_timeout_s=5, prepare_timeout_s=5)

    async def glued(pod, shake):
        parts, send = [b"HTTP/1.1 102 Processing\r\n\r\n"], shake.send
        shake.send = parts.append
        shake.accept(pod)
        shake.send = send
        shake.send(b"".join(parts))
        await shake.read_request()
        shake.send(b"HTTP/1.1 101 X\r\n\r\n")
        await shake.reader.read()

    now = farm.proxy.dials.clock
    await farm.add(fakes.Pod("a", glued))
    farm.proxy.dials.clock = lambda: now() + (20 if farm.proxy.driver.dialling else 0)
    caller = await farm.upgrade()
    assert (await caller.head())[0] == 101
    assert farm.count("farmproxy_dials_total", result="timeout") == 0
