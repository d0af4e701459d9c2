"""Sessions must die by reference count: the collector's pauses are then rare (and what it costs is measured)."""

import gc

import pytest
from farmproxy.door.connections import Connection
from farmproxy.door.joins import Join
from farmproxy.door.sessions import Session
from farmproxy.observe import gc_tuning
from farmproxy.registry.leases import Lease
from farmproxy.tunnel.tunnels import Tunnel
from farmproxy.upstream.dials import Dialling

KINDS = (Tunnel, Session, Connection, Dialling, Join)


def alive():
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS)]


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "way", ["caller closes", "caller resets", "pod dies", "job done", "refused", "idle limit"]
)
async def test_a_session_leaves_no_cycle(new_farm, fakes, no_collector, way):
    farm = new_farm(lease_idle_s=600.0 if way == "idle limit" else 0.0)
    pod = fakes.Pod("a", fakes.serve_render if way == "job done" else fakes.serve_echo)
    await farm.add(pod)
    if way == "job done":
        caller = await farm.caller(farm.request("POST", "/render", b"{}"))
        assert (await caller.answer())[0] == 200
    elif way == "refused":
        caller = await farm.get("/nowhere")
        assert (await caller.refusal())[0] == 404
    else:
        caller = await farm.upgrade()
        assert (await caller.head())[0] == 101
    if way == "pod dies":
        await pod.stop()
    elif way == "caller resets":
        caller.reset()
    else:
        caller.close()
    await farm.idle()
    await farm.until(lambda: not alive())
    assert not [one for one in gc.get_objects() if isinstance(one, Lease) and one.id in farm.proxy.book.live]


async def test_a_join_leaves_no_cycle(farm, fakes, no_collector):
    async def named(pod, shake):
        shake.accept(pod)
        await shake.reader.read()

    pod = fakes.Pod("a", named)
    pod.joins = fakes.serve_echo
    await farm.add(pod)
    api = await farm.caller(farm.request("POST", "/leases", b""))
    status, _, body = await api.answer()
    assert status == 201
    path = body.decode().partition(f"ws://{farm.address}")[2].partition('"')[0]
    join = await farm.upgrade(path)
    assert (await join.head())[0] == 101
    join.close()
    api.close()
    await farm.until(lambda: not set(alive()) & {"Join", "Tunnel"})


def test_the_collector_stays_on():
    was, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        gc_tuning.settle()
        assert gc.isenabled()
        assert gc.get_threshold()[0] >= 10_000
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
        gc.set_threshold(*was)
