"""POST /leases and what follows: joins, limits of use, renewing, ends and how long they are remembered."""

import asyncio
import json

import pytest


@pytest.fixture
def named_pod(fakes):
    async def leased(pod, shake):
        shake.accept(pod)
        await shake.reader.read()
        pod.left.set()

    def make(name="a"):
        pod = fakes.Pod(name, leased)
        pod.joins = fakes.serve_echo
        pod.left = asyncio.Event()
        return pod

    return make


async def take(farm, query="", body=b"{}"):
    api = await farm.caller(farm.request("POST", f"/leases{query}", body))
    status, _, answer = await api.answer()
    assert status == 201
    return api, json.loads(answer)


def path_of(farm, told, kind="browser_ws"):
    return told["urls"][kind].partition(str(farm.address))[2]


async def state_of(farm, id_):
    caller = await farm.get(f"/leases/{id_}", Connection="close")
    return json.loads((await caller.answer())[2])


async def test_the_answer_names_everything(farm, named_pod):
    await farm.add(named_pod())
    _, told = await take(farm, body=b'{"label": "job 7", "max": 60.5, "hold": 1}')
    assert set(told) == {"id", "pod", "label", "expires_at", "connect_by", "urls"}
    assert (told["pod"], told["label"]) == ("a", "job 7")
    assert told["urls"]["http"].startswith(f"http://{farm.address}/leases/{told['id']}.")
    assert told["urls"]["browser_ws"] == told["urls"]["http"].replace("http", "ws", 1) + "/devtools/browser"
    assert told["expires_at"] > told["connect_by"]


async def test_a_held_request_is_answered_when_a_pod_comes(farm, named_pod):
    api = await farm.caller(farm.request("POST", "/leases", b"{}", Expect="100-continue"))
    assert (await api.head())[0] == 100
    await farm.until(lambda: farm.counts().held == 1)
    await farm.add(named_pod())
    assert (await api.answer())[0] == 201


async def test_no_join_within_the_first_use_limit(new_farm, named_pod):
    farm = new_farm(first_use_s=0.3)
    pod = named_pod()
    await farm.add(pod)
    _, told = await take(farm)
    await asyncio.wait_for(pod.left.wait(), 5)
    await farm.idle()
    assert (await state_of(farm, told["id"]))["end"] == "first-use"


async def test_no_join_for_the_rejoin_limit(new_farm, named_pod):
    farm = new_farm(first_use_s=30, rejoin_s=0.3)
    pod = named_pod()
    await farm.add(pod)
    _, told = await take(farm)
    for _ in range(2):
        joined = await farm.upgrade(path_of(farm, told))
        assert (await joined.head())[0] == 101
        joined.close()
        await farm.until(lambda: (farm.proxy.book.live[told["id"]].joins or set()) == set())
    await asyncio.wait_for(pod.left.wait(), 5)
    await farm.idle()
    assert (await state_of(farm, told["id"]))["end"] == "rejoin"


async def test_a_join_that_stays_keeps_the_lease(new_farm, named_pod):
    farm = new_farm(first_use_s=0.2, rejoin_s=0.2)
    pod = named_pod()
    await farm.add(pod)
    _, told = await take(farm)
    joined = await farm.upgrade(path_of(farm, told))
    await joined.head()
    await asyncio.sleep(0.8)  # longer than both limits: the time itself is the test
    joined.send(b"x")
    assert await joined.reader.readexactly(1) == b"x"
    assert not pod.left.is_set()


async def test_a_join_carries_path_query_and_base(farm, fakes, named_pod):
    heads = []  # of the join, and of the caller's request in it

    async def join(pod, shake):
        shake.accept(pod, Farm_Lease=None)
        heads.append((shake.fields, await shake.read_request()))
        shake.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]")

    pod = named_pod()
    pod.joins = join
    await farm.add(pod)
    _, told = await take(farm)
    caller = await farm.get(path_of(farm, told, "http") + "/json/list?a=1&token=zzz")
    assert (await caller.answer())[2] == b"[]"
    fields, head = heads[0]
    assert fields["farm-join"] == told["id"]
    assert (fields["farm-lease-max-s"], fields["farm-dials"]) == ("900", "1")
    assert "farm-lease" not in fields
    assert fields["farm-public-base"] == told["urls"]["http"].replace("http", "ws", 1)
    assert head.startswith(b"GET /json/list?a=1 HTTP/1.1\r\n")
    # what stands there is the pod's to read, whatever the door would make of it: here a page's own URL
    page = "http://shop.example/?max=1&max=2&label=x"
    caller = await farm.caller(
        farm.request("PUT", f"{path_of(farm, told, 'http')}/json/new?{page}&token=zzz")
    )
    assert (await caller.answer())[0] == 200
    assert heads[1][1].startswith(f"PUT /json/new?{page} HTTP/1.1\r\n".encode())
    # a socket of Chrome's has no query: what stands there would have no effect
    caller = await farm.upgrade(path_of(farm, told, "http") + "/devtools/browser?token=zzz&user_agent=x")
    status, _, body = await caller.answer()
    assert (status, "'user_agent'" in json.loads(body)["detail"]) == (400, True)


async def test_joins_of_a_websocket_lease(farm, fakes):
    # /json inside a lease gives URLs that can be joined
    pod = fakes.Pod("a")
    pod.joins = fakes.serve_echo
    await farm.add(pod)
    caller = await farm.upgrade()
    await caller.head()
    base = pod.shakes[0].fields["farm-public-base"].partition(str(farm.address))[2]
    second = await farm.upgrade(base + "/devtools/page/1")
    assert (await second.head())[0] == 101
    caller.close()  # the lease's own connection: its end ends all
    assert await asyncio.wait_for(second.reader.read(), 5) == b""
    await farm.idle()
    late = await farm.upgrade(base)
    assert await late.refusal() == (404, "not-found")  # never a random browser


async def test_an_agent_that_does_not_know_the_lease(farm, fakes, named_pod):
    pod = named_pod()
    pod.joins = fakes.answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    await farm.add(pod)
    _, told = await take(farm)
    joined = await farm.upgrade(path_of(farm, told))
    assert await joined.refusal() == (404, "not-found")
    pod.joins = fakes.answer(b"nonsense\r\n\r\n")
    joined = await farm.upgrade(path_of(farm, told))
    assert await joined.refusal() == (502, "pod-lost")


async def test_leaving_during_a_join(farm, fakes, named_pod):
    closed = asyncio.Event()

    async def join(pod, shake):
        await shake.reader.read()
        closed.set()

    pod = named_pod()
    pod.joins = join
    await farm.add(pod)
    _, told = await take(farm)
    joined = await farm.upgrade(path_of(farm, told))
    await farm.until(lambda: farm.proxy.book.live[told["id"]].joins)
    joined.reset()
    await asyncio.wait_for(closed.wait(), 5)
    await farm.until(lambda: not farm.proxy.book.live[told["id"]].joins)


async def test_delete_is_idempotent_and_ends_the_joins(farm, named_pod):
    pod = named_pod()
    await farm.add(pod)
    api, told = await take(farm)
    joined = await farm.upgrade(path_of(farm, told))
    await joined.head()
    for _ in range(2):
        api.send(farm.request("DELETE", f"/leases/{told['id']}"))
        assert (await api.head())[0] == 204
    assert await joined.reader.read() == b""
    await asyncio.wait_for(pod.left.wait(), 5)
    again = await farm.upgrade(path_of(farm, told))
    assert await again.refusal() == (404, "not-found")


async def test_the_key_opens_a_lease_after_its_end_too(new_farm, named_pod, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("alice:aaa\nbob:bbb\n")
    farm = new_farm(tokens_file=str(tokens))
    await farm.add(named_pod())
    _, told = await take(farm, "?token=aaa")
    by_key = path_of(farm, told, "http")
    by_owner, by_other = (f"/leases/{told['id']}?token={token}" for token in ("aaa", "bbb"))
    wrong = by_key[:-1] + ("0" if by_key[-1] != "0" else "1")

    async def ask(method, target):
        caller = await farm.caller(farm.request(method, target, Connection="close"))
        status, fields = await caller.head()
        body = await caller.reader.readexactly(int(fields.get("content-length", "0")))
        return status, json.loads(body).get("end") if body else None

    assert await ask("GET", by_key) == (200, None)
    for _ in range(3):
        assert await ask("DELETE", by_key) == (204, None)
    await farm.idle()
    assert await ask("GET", by_key) == await ask("GET", by_owner) == (200, "deleted")
    assert (await ask("DELETE", by_owner))[0] == 204
    for target in (by_other, wrong):
        assert (await ask("GET", target))[0] == (await ask("DELETE", target))[0] == 404
    assert (await ask("POST", by_key + "/renew"))[0] == 404
    joined = await farm.upgrade(by_key)
    assert await joined.refusal() == (404, "not-found")
    clock = farm.proxy.book._clock
    farm.proxy.book._clock = lambda: clock() + 301
    farm.proxy.book.sweep()
    assert (await ask("GET", by_key))[0] == (await ask("DELETE", by_key))[0] == 404


async def test_delete_of_a_socket_lease_cuts_its_caller(farm, fakes):
    await farm.add(fakes.Pod("a"))
    caller = await farm.upgrade("/?label=x")
    await caller.head()
    (listed,) = await _list(farm, "?label=x")
    assert await _list(farm, "?label=y") == []
    assert listed["kind"] == "socket"
    api = await farm.caller(farm.request("DELETE", f"/leases/{listed['id']}"))
    assert (await api.head())[0] == 204
    assert await caller.reader.read() == b""
    assert (await state_of(farm, listed["id"]))["end"] == "deleted"


async def test_renew_and_max(farm, named_pod):
    pod = named_pod()
    await farm.add(pod)
    api, told = await take(farm, "?max=0.4")
    api.send(farm.request("POST", f"/leases/{told['id']}/renew", b'{"max": 100000}'))
    assert await api.refusal() == (400, "bad-request")
    api = await farm.caller(farm.request("POST", f"/leases/{told['id']}/renew", b'{"max": 1}'))
    renewed = json.loads((await api.answer())[2])
    assert renewed["expires_at"] > told["expires_at"]
    await asyncio.wait_for(pod.left.wait(), 5)
    await farm.idle()
    state = await state_of(farm, told["id"])
    assert state["end"] == "max"
    assert farm.log.of("lease-ended")[0]["lease_s"] >= 0.9
    late = await farm.caller(farm.request("POST", f"/leases/{told['id']}/renew", b'{"max": 1}'))
    assert await late.refusal() == (404, "not-found")


async def test_the_agent_hears_of_a_renewal_by_a_join_without_a_byte(farm, fakes, named_pod):
    heard = asyncio.Queue()

    async def join(pod, shake):
        shake.accept(pod)
        heard.put_nowait((shake.fields, await shake.reader.read()))

    pod = named_pod()
    pod.joins = join
    await farm.add(pod)
    api, told = await take(farm, "?max=30")
    api.send(farm.request("POST", f"/leases/{told['id']}/renew", b'{"max": 1200}'))
    assert (await api.answer())[0] == 200
    fields, request = await asyncio.wait_for(heard.get(), 5)
    assert (fields["farm-join"], fields["farm-lease-max-s"], request) == (told["id"], "1200", b"")
    assert farm.counts().leases == 1


async def test_an_agent_that_closes_ends_the_lease(farm, fakes):
    go = asyncio.Event()

    async def leased(pod, shake):
        shake.accept(pod)
        await go.wait()

    pod = fakes.Pod("a", leased)
    pod.end = "browser-died"
    await farm.add(pod)
    _, told = await take(farm)
    go.set()
    await farm.idle()
    assert (await state_of(farm, told["id"]))["end"] == "browser-died"


async def test_ended_leases_are_forgotten_after_five_minutes(new_farm, fakes):
    farm = new_farm()
    await farm.add(fakes.Pod("a"))
    caller = await farm.upgrade()
    await caller.head()
    (listed,) = await _list(farm)
    caller.close()
    await farm.idle()
    assert (await state_of(farm, listed["id"]))["state"] == "ended"
    clock = farm.proxy.book._clock
    farm.proxy.book._clock = lambda: clock() + 299
    farm.proxy.book.sweep()
    assert (await state_of(farm, listed["id"]))["end"] == "done"
    farm.proxy.book._clock = lambda: clock() + 301
    farm.proxy.book.sweep()
    caller = await farm.get(f"/leases/{listed['id']}")
    assert await caller.refusal() == (404, "not-found")


async def _list(farm, query=""):
    caller = await farm.get("/leases" + query)
    return json.loads((await caller.answer())[2])["leases"]
