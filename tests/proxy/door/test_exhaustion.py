"""No descriptors, no ports, and faults of the proxy's own: refused in time, never spinning, never leaking."""

import errno

import pytest
from farmproxy.config import settings
from farmproxy.door import context, listener, sessions


async def test_a_full_process_pauses_its_accepts(farm, monkeypatch):
    tries = []
    real = listener.accept

    def full(listening, family):
        tries.append(1)
        if len(tries) <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(listening, family)

    monkeypatch.setattr(listener, "accept", full)
    caller = await farm.get("/json")
    assert (await caller.answer())[0] == 200
    assert len(farm.log.of("accept-paused")) == 2
    assert len(tries) <= 5


async def test_a_connection_that_is_gone_already_stops_nobody(farm, monkeypatch):
    real, tries = listener.accept, []

    def gone(listening, family):
        tries.append(1)
        if len(tries) == 1:
            raise OSError(errno.ECONNABORTED, "Software caused connection abort")
        return real(listening, family)

    monkeypatch.setattr(listener, "accept", gone)
    caller = await farm.get("/json")
    assert (await caller.answer())[0] == 200


async def test_a_dial_without_a_descriptor_is_nobodys_fault_but_ours(farm, fakes, monkeypatch):
    pod = fakes.Pod("a")
    await farm.add(pod)

    def none_left(address):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("farmproxy.upstream.dials.outgoing", none_left)
        caller = await farm.upgrade()
        assert await caller.refusal() == (503, "descriptors")
    assert farm.counts().pods["free"] == 1
    caller = await farm.upgrade()
    assert (await caller.head())[0] == 101


async def test_a_bug_costs_its_own_caller_only(farm, fakes, monkeypatch):
    await farm.add(fakes.Pod("a"), fakes.Pod("b"))
    well = await farm.upgrade()
    await well.head()
    with monkeypatch.context() as patch:
        patch.setattr(sessions, "request_for", lambda *_: 1 / 0)
        ill = await farm.upgrade()
        assert await ill.refusal() == (500, "proxy-fault")
    well.send(b"x")
    assert await well.reader.readexactly(1) == b"x"
    assert len(farm.log.of("bug")) == 1
    assert farm.counts().pods["free"] == 1
    farm.log.lines.clear()
    well.close()
    await farm.idle()


# Memory: 10,000 held callers of any kind fit, or those that do not are refused


LARGE = "x" * 15_000
KINDS = ["plain", "head", "early", "body", "chunked", "declared", "named"]


def _held(farm, kind):
    named = farm.request("POST", "/leases", b"{}")
    render = farm.request("POST", "/render", Transfer_Encoding="chunked")
    upgrade = farm.request("GET", "/", Upgrade="websocket", Connection="Upgrade")
    return {
        "plain": (upgrade, 0),
        "head": (farm.request("GET", "/", Upgrade="websocket", Connection="Upgrade", X=LARGE), 15_000),
        "early": (upgrade + b"x" * 60_000, 60_000),
        "body": (farm.request("POST", "/render", b"x" * 200_000), 200_000),
        "chunked": (render + b"2\r\n", 0),
        "declared": (farm.request("POST", "/render", b"x" * 200_000)[:-199_998], 0),
        "named": (named, 0),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_held_caller_is_counted_at_what_it_sent_and_a_little(farm, kind):
    data, sent = _held(farm, kind)
    await farm.caller(data)
    holds = farm.proxy.farm._pools["default"].holds
    await farm.until(lambda: farm.counts().held == 1 and holds.cost >= sent)
    assert sent + 4096 <= holds.cost <= sent + 6144


async def test_callers_that_do_not_fit_are_refused_one_by_one_and_the_small_ones_stay(new_farm, monkeypatch):
    monkeypatch.setattr(settings, "HOLD_BYTES", 410_000)
    farm = new_farm()
    small = await farm.caller(_held(farm, "chunked")[0])
    await farm.until(lambda: farm.counts().held == 1)
    large = [await farm.caller(_held(farm, "early")[0]) for _ in range(10)]
    await farm.until(lambda: farm.count("farmproxy_refusals_total", reason="queue-full") == 4)
    await farm.caller(_held(farm, "chunked")[0])
    await farm.until(lambda: farm.counts().held == 8)
    refused = [caller for caller in large if caller.reader.at_eof() or caller.reader._buffer]
    assert [await caller.refusal() for caller in refused] == [(429, "queue-full")] * 4
    small.send(b"{}\r\n0\r\n\r\n")
    await farm.until(lambda: farm.counts().held == 8)


async def test_early_bytes_reach_the_pod_and_too_many_are_a_413_for_their_own_caller(farm, fakes):
    other, greedy = await farm.caller(_held(farm, "early")[0]), await farm.caller(_held(farm, "early")[0])
    greedy.send(b"x" * 10_000)
    assert await greedy.refusal() == (413, "body-too-large")
    await farm.add(fakes.Pod("a"))
    assert (await other.head())[0] == 101
    assert await other.reader.readexactly(60_000) == b"x" * 60_000


async def test_requests_that_are_not_whole_are_bounded_together(farm, monkeypatch):
    monkeypatch.setattr(context, "EARLY_BUDGET", 40_000)
    half = _held(farm, "head")[0][:-10]
    waiting = [await farm.caller(half) for _ in range(2)]
    await farm.until(lambda: farm.proxy.door.early_bytes > 30_000)
    assert await (await farm.caller(half)).refusal() == (429, "queue-full")
    assert (await (await farm.get("/json")).answer())[0] == 200
    for caller in waiting:
        caller.close()
    await farm.until(lambda: farm.proxy.door.early_bytes == 0)


async def test_what_a_caller_pipelines_behind_post_leases_is_counted_and_served(farm, fakes):
    ask = farm.request("POST", "/leases", b"{}")
    caller = await farm.caller(ask)
    await farm.until(lambda: farm.counts().held == 1)
    caller.send(farm.request("GET", "/json"))
    await farm.until(lambda: farm.proxy.door.early_bytes > 0)
    greedy = await farm.caller(ask)
    await farm.until(lambda: farm.counts().held == 2)
    greedy.send(b"x" * 20_000)
    assert await greedy.refusal() == (413, "body-too-large")
    await farm.add(fakes.Pod("a"))
    assert (await caller.answer())[0] == 201
    assert (await caller.answer())[0] == 200
    assert farm.proxy.door.early_bytes == 0
