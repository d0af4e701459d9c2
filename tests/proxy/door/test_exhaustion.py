"""No descriptors, no ports, and faults of the proxy's own: refused in time, never spinning, never leaking."""

import errno

from farmproxy.door import callers, listener


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
        patch.setattr("farmproxy.dials.outgoing", none_left)
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
        patch.setattr(callers, "head_for_pod", lambda *_: 1 / 0)
        ill = await farm.upgrade()
        assert await ill.refusal() == (502, "pod-lost")
    well.send(b"x")
    assert await well.reader.readexactly(1) == b"x"
    assert len(farm.log.of("bug")) == 1
    assert farm.counts().pods["free"] == 1
    farm.log.lines.clear()
    well.close()
    await farm.idle()


async def test_early_bytes_of_all_callers_together_are_bounded(farm, fakes, monkeypatch):
    monkeypatch.setattr(callers, "EARLY_BUDGET", 100_000)
    waiting = []
    for _ in range(4):
        caller = await farm.upgrade()
        caller.send(b"x" * 60_000)
        waiting.append(caller)
    await farm.until(lambda: farm.counts().held == 4 and farm.proxy.door.early_bytes >= 100_000)
    assert farm.proxy.door.early_bytes < 100_000 + 4 * 60_000
    pods = [fakes.Pod(name) for name in "abcd"]
    await farm.add(*pods)
    for caller in waiting:
        assert (await caller.head())[0] == 101
        assert await caller.reader.readexactly(60_000) == b"x" * 60_000
    assert farm.proxy.door.early_bytes == 0
