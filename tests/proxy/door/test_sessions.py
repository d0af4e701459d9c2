"""A caller's whole way: head, hold, dial, session, end."""

import asyncio
import json

import pytest


async def test_a_websocket_caller_gets_a_pod_of_its_own(farm, fakes):
    pod = fakes.Pod("a")
    await farm.add(pod)
    caller = await farm.upgrade("/devtools/browser/farm?token=x&label=job")
    status, _fields = await caller.head()
    assert status == 101
    caller.send(b"hello")
    assert await caller.reader.readexactly(5) == b"hello"
    assert farm.counts().leases == 1
    shake = pod.shakes[0]
    assert shake.head.startswith(b"GET /lease HTTP/1.1\r\n")
    assert shake.fields["upgrade"] == "farm-lease"
    assert shake.fields["farm-dials"] == "1"
    assert shake.fields["farm-lease-max-s"] == "900"
    assert shake.fields["farm-public-base"].startswith(
        f"ws://{farm.address}/leases/{shake.fields['farm-lease']}."
    )
    assert shake.request.startswith(b"GET /devtools/browser/farm HTTP/1.1\r\n")
    assert fakes.fields_of(shake.request)["host"] == f"127.0.0.1:{pod.port}"
    caller.close()
    await farm.idle()
    (line,) = farm.log.of("lease-ended")
    assert (line["label"], line["end"], line["dials"], line["bytes_up"] > 5) == ("job", "done", 1, True)
    assert farm.count("farmproxy_leases_ended_total", reason="done") == 1


async def test_a_pod_that_is_not_connected_at_once_is_asked_when_it_is(farm, fakes, monkeypatch):
    # To loopback a connection stands at once; over a network it does not.
    monkeypatch.setattr("farmproxy.upstream.dials.Dialling._asked_at_once", lambda _dialling: False)
    pod = fakes.Pod("a")
    await farm.add(pod)
    caller = await farm.upgrade()
    assert (await caller.head())[0] == 101
    caller.close()
    await farm.idle()
    assert len(pod.shakes) == 1


async def test_a_render_caller_gets_its_answer_and_the_connection_closes(farm, fakes):
    pod = fakes.Pod("a", fakes.serve_render)
    await farm.add(pod)
    body = b'{"url": "http://x"}'
    caller = await farm.caller(farm.request("POST", "/render", body))
    assert (await caller.answer())[2] == body
    assert await caller.reader.read() == b""
    await farm.idle()
    assert farm.log.of("lease-ended")[0]["end"] == "done"


async def test_a_named_lease_and_its_joins(farm, fakes):
    pod = fakes.Pod("a", fakes.hang_leased if hasattr(fakes, "hang_leased") else _leased)
    pod.joins = fakes.serve_echo
    await farm.add(pod)
    api = await farm.caller(farm.request("POST", "/leases?label=mine", b""))
    status, _, body = await api.answer()
    told = json.loads(body)
    assert status == 201
    assert told["label"] == "mine"
    path = told["urls"]["browser_ws"].removeprefix(f"ws://{farm.address}")
    first = await farm.upgrade(path)
    second = await farm.upgrade(path + "/x")
    for caller in (first, second):
        assert (await caller.head())[0] == 101
        caller.send(b"hi")
        assert await caller.reader.readexactly(2) == b"hi"
    api.send(farm.request("GET", f"/leases/{told['id']}"))
    state = json.loads((await api.answer())[2])
    assert (state["state"], state["connections"]) == ("leased", 2)
    api.send(farm.request("DELETE", f"/leases/{told['id']}"))
    assert (await api.head())[0] == 204
    assert await first.reader.read() == b""
    assert await second.reader.read() == b""
    api.send(farm.request("GET", f"/leases/{told['id']}"))
    state = json.loads((await api.answer())[2])
    assert (state["state"], state["end"]) == ("ended", "deleted")
    await farm.idle()


async def _leased(pod, shake):
    shake.accept(pod)
    await shake.reader.read()


async def test_version_and_list_take_no_lease(farm, fakes):
    caller = await farm.get("/json/version?token=t")
    told = json.loads((await caller.answer())[2])
    assert told["webSocketDebuggerUrl"] == f"ws://{farm.address}/devtools/browser/farm?token=t"
    await farm.add(fakes.Pod("a"))
    await farm.until(lambda: farm.proxy.versions.of("default")["Browser"] == "Fake/a")
    caller.send(farm.request("GET", "/json/list/"))
    assert (await caller.answer())[2] == b"[]"
    assert farm.counts().leases == 0


async def test_a_held_caller_is_served_when_a_pod_comes(farm, fakes):
    caller = await farm.upgrade()
    await farm.until(lambda: farm.counts().held == 1)
    await farm.add(fakes.Pod("a"))
    assert (await caller.head())[0] == 101


async def test_leaving_frees_the_place(farm, fakes):
    for how in ("close", "reset"):
        caller = await farm.upgrade()
        await farm.until(lambda: farm.counts().held == 1)
        getattr(caller, how)()
        await farm.until(lambda: farm.counts().held == 0)
    pod = fakes.Pod("a")
    await farm.add(pod)
    await asyncio.sleep(0)
    assert pod.shakes == []


@pytest.mark.parametrize("n", [1])
async def test_fifo(farm, fakes, n):
    pod = fakes.Pod("a", fakes.serve_render)
    callers = []
    for i in range(5):
        callers.append(await farm.caller(farm.request("POST", "/render", b"%d" % i)))
        await farm.until(lambda i=i: farm.counts().held == i + 1)
    await farm.add(pod)
    for i, caller in enumerate(callers):
        assert (await caller.answer())[2] == b"%d" % i
    assert pod.most == 1
    assert len(pod.shakes) == 5
