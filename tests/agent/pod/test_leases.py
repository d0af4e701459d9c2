"""GET /lease: the handshake, its refusals, joins, and every way in which a lease ends."""

import asyncio
import json

import farmagent.chrome.heartbeats
import farmagent.lease.pod
import pytest
from farmagent.chrome.directories import WorkDirectory
from farmagent.errors import AgentError
from farmagent.lease.leasing import KeyFile
from farmagent.lease.pod import Pod
from farmagent.settings import Settings


async def test_101_names_lease_and_pod(pod):
    status, fields, _, _, _ = await pod.lease("L1")
    assert status == 101
    assert fields["upgrade"] == "farm-lease"
    assert fields["farm-lease"] == "L1"
    assert fields["farm-pod"] == "farm/browsers-1/uid-1"


async def test_a_second_lease_gets_409_busy(pod):
    await pod.leased("L1")
    status, _, body, _, _ = await pod.lease("L2")
    assert (status, json.loads(body)) == (409, {"reason": "busy"})


async def test_409_says_starting_recycling_draining(pod_with, monkeypatch):
    monkeypatch.setattr("farmagent.lease.states.BACKOFF_S", 0.15)
    async with pod_with() as pod:
        pod.fail.extend([True] * 2)
        assert json.loads((await pod.lease("L1"))[2]) == {"reason": "starting"}
        await pod.until(lambda pod: pod.busy is None)
        reader, writer = await pod.leased("L2", more=b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        pod.fail.extend([True])
        await reader.read()
        writer.close()
        assert json.loads((await pod.lease("L3"))[2]) == {"reason": "recycling"}
        await pod.until(lambda pod: pod.busy is None)
        _, writer = await pod.leased("L4")
        pod.pod.drain()
        assert json.loads((await pod.lease("L5"))[2]) == {"reason": "draining"}
        writer.close()


async def test_a_lease_without_a_caller_byte_needs_no_recycle(pod):
    chrome = pod.chrome
    _, writer = await pod.leased("L1")
    writer.close()
    status, _, body = await pod.get("/readyz?wait=5&lease=L1")
    assert (status, json.loads(body)["end"]) == (200, "done")
    assert pod.chrome is chrome


async def test_a_lease_with_one_byte_gets_another_chrome(pod):
    chrome = pod.chrome
    _reader, writer = await pod.leased("L1")
    writer.write(b"G")
    await pod.until(lambda pod: pod._states.lease is not None and pod._states.lease.used)
    writer.close()
    assert (await pod.get("/readyz?wait=5"))[0] == 200
    assert pod.chrome is not chrome
    assert chrome.returncode == -9


async def test_the_connection_is_the_lease_also_when_it_is_reset(pod):
    _reader, writer = await pod.leased("L1")
    writer.transport.abort()
    assert (await pod.get("/readyz?wait=5"))[0] == 200


async def test_half_close_is_gone(pod):
    reader, writer = await pod.leased("L1")
    writer.write_eof()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    assert (await pod.get("/readyz?wait=5"))[0] == 200


async def test_chrome_is_asked_at_that_moment(pod, monkeypatch):
    """A Chrome that froze after its last heartbeat is not leased: 102s until it answers again."""
    monkeypatch.setattr("farmagent.lease.pod.ANSWER_S", 5.0)
    pod.chrome.frozen = True
    reader, writer = await pod.connect()
    writer.write(
        b"GET /lease HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\nFarm-Lease: L1\r\n\r\n"
    )
    async with asyncio.timeout(5):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 102")
        pod.chrome.frozen = False
        while b" 101 " not in (head := await reader.readuntil(b"\r\n\r\n")):
            assert b" 102 " in head
    writer.close()


async def test_a_proxy_that_leaves_during_the_handshake_leaves_a_free_pod(pod):
    chrome = pod.chrome
    chrome.frozen = True
    _reader, writer = await pod.connect()
    writer.write(
        b"GET /lease HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\nFarm-Lease: L1\r\n\r\n"
    )
    await pod.until(lambda pod: pod.lease is not None)
    writer.close()
    await pod.until(lambda pod: pod.busy is None)
    chrome.frozen = False
    assert pod.chrome is chrome


async def test_a_chrome_that_dies_during_the_handshake_is_409(pod):
    chrome = pod.chrome
    chrome.frozen = True
    asked = pod.begin(pod.lease("L1"))
    await pod.until(lambda pod: pod.lease is not None)
    pod.fail.append(True)
    chrome.end(-11)
    status, _, body, _, _ = await asked
    assert (status, json.loads(body)) == (409, {"reason": "recycling"})


async def test_a_frozen_chrome_is_a_dead_one(pod_with):
    async with pod_with(heartbeat_s=0.05) as pod:
        await pod.until(lambda pod: pod.busy is None)
        reader, _ = await pod.leased("L1")
        pod.chrome.frozen = True
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        _, _, body = await pod.get("/readyz?wait=5&lease=L1")
        assert json.loads(body)["end"] == "browser-died"


def test_a_silent_chrome_is_known_soon():
    assert 1.0 <= farmagent.lease.pod.ANSWER_S <= 2.0


class TestSilent:
    """A Chrome that does not answer a handshake: its caller has sent nothing yet, and may have another pod's."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch):
        monkeypatch.setattr("farmagent.lease.pod.ANSWER_S", 0.1)

    async def test_is_409_starting_and_free_again_when_it_answers(self, pod):
        chrome = pod.chrome
        chrome.frozen = True
        status, _, body, _, _ = await pod.lease("L1")
        assert (status, json.loads(body)) == (409, {"reason": "starting"})
        assert (await pod.get("/readyz"))[0] == 503
        assert json.loads((await pod.lease("L2"))[2]) == {"reason": "starting"}
        chrome.frozen = False
        assert (await pod.get("/readyz?wait=5"))[0] == 200
        assert pod.chrome is chrome

    async def test_is_replaced_when_it_stays_silent(self, pod_with):
        async with pod_with(heartbeat_s=0.2) as pod:
            await pod.until(lambda pod: pod.busy is None)
            chrome = pod.chrome
            chrome.frozen = True
            assert (await pod.lease("L1"))[0] == 409
            assert (await pod.get("/readyz?wait=5"))[0] == 200
            assert pod.chrome is not chrome
            await pod.leased("L2")

    async def test_while_it_drains_it_leaves(self, pod):
        pod.chrome.frozen = True
        asked = pod.begin(pod.lease("L1"))
        await pod.until(lambda pod: pod.lease is not None)
        pod.pod.drain()
        async with asyncio.timeout(10):
            assert (await asked)[0] == 409
            await pod.pod.drained.wait()


async def test_a_few_missed_heartbeats_are_a_slow_chrome_not_a_dead_one(pod_with):
    async with pod_with(heartbeat_s=0.2) as pod:
        await pod.until(lambda pod: pod.busy is None)
        chrome = pod.chrome
        _, writer = await pod.leased("L1")
        chrome.frozen = True
        await asyncio.sleep(0.3)  # one and a half of the three intervals, a span and no state
        chrome.frozen = False
        await pod.pod._browsers[1].heartbeat.ask()
        assert pod.pod.lease is not None
        writer.close()


async def test_a_chrome_that_is_only_busy_keeps_its_lease(pod_with):
    """Silent for longer than a frozen one may be, but at work."""
    async with pod_with(heartbeat_s=0.05) as pod:
        await pod.until(lambda pod: pod.busy is None)
        chrome = pod.chrome
        _, writer = await pod.leased("L1")
        chrome.busy = True
        await asyncio.sleep(0.6)  # four times what ends a frozen one, a span and no state
        chrome.busy = False
        await pod.pod._browsers[1].heartbeat.ask()
        assert (pod.pod.lease.id, pod.chrome) == ("L1", chrome)
        writer.close()


async def test_a_chrome_that_is_busy_for_ever_is_given_up(pod_with, monkeypatch):
    assert farmagent.chrome.heartbeats.BUSY_MAX_S == 60.0
    monkeypatch.setattr("farmagent.chrome.heartbeats.BUSY_MAX_S", 0.4)
    async with pod_with(heartbeat_s=0.05) as pod:
        await pod.until(lambda pod: pod.busy is None)
        reader, _ = await pod.leased("L1")
        pod.chrome.busy = True
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        _, _, body = await pod.get("/readyz?wait=5&lease=L1")
        assert json.loads(body)["end"] == "browser-died"


def test_who_uses_a_chrome_that_freezes_learns_of_it_within_ten_seconds():
    """At most an interval passes before it is asked, then each question waits for one."""
    heartbeat_s = Settings.from_env({}).heartbeat_s
    assert (1 + farmagent.chrome.heartbeats.MISSES_MAX) * heartbeat_s < 10.0


class TestFirstPage:
    """Playwright's own example takes contexts[0].pages[0] right after it has connected."""

    async def test_is_there_before_the_101_and_only_once(self, pod):
        for lease in ("L1", "L2"):
            _, writer = await pod.leased(lease)
            assert pod.chrome.pages == 1
            writer.close()
            await pod.until(lambda pod: pod.busy is None)

    async def test_is_there_after_a_recycle(self, pod):
        first = pod.chrome
        _, writer = await pod.leased("L1", more=b"G")
        writer.close()
        await pod.until(lambda pod: pod.busy is None and pod.chrome.process is not first)
        await pod.leased("L2")
        assert pod.chrome.pages == 1

    async def test_of_a_spare_too(self, pod_with):
        async with pod_with(recycle="spare", spare_after_s=0.01) as pod:
            await pod.until(lambda pod: pod.busy is None)
            _, writer = await pod.leased("L1", more=b"G")
            await pod.until(lambda _: len(pod.chromes) == 2 and pod.chromes[1].heads)
            writer.close()
            assert (await pod.get("/readyz?wait=5"))[0] == 200
            await pod.leased("L2")
            assert (pod.chrome, pod.chrome.pages) == (pod.chromes[1], 1)


@pytest.mark.parametrize(
    ("returncode", "end"), [(-11, "browser-died"), (-9, "browser-died"), (1, "browser-died"), (0, "done")]
)
async def test_chromes_end_ends_an_idle_lease_at_once(pod, returncode, end):
    reader, _ = await pod.leased("L1")
    pod.chrome.end(returncode)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    _, _, body = await pod.get("/readyz?wait=5&lease=L1")
    assert json.loads(body)["end"] == end


async def test_the_longest_time_ends_a_lease_should_the_proxy_not(pod, monkeypatch):
    monkeypatch.setattr("farmagent.lease.pod.MAX_SLACK_S", -0.95)
    reader, _ = await pod.leased("L1", "Farm-Lease-Max-S: 1")
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    _, _, body = await pod.get("/readyz?wait=5&lease=L1")
    assert json.loads(body)["end"] == "max"


async def test_a_join_says_how_long_the_lease_may_last_now(pod, monkeypatch):
    monkeypatch.setattr("farmagent.lease.pod.MAX_SLACK_S", -0.95)
    reader, _ = await pod.leased("L1", "Farm-Lease-Max-S: 600")
    _, writer = await pod.leased("L1", "Farm-Lease-Max-S: 1", kind="Farm-Join")
    writer.close()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    _, _, body = await pod.get("/readyz?wait=5&lease=L1")
    assert json.loads(body)["end"] == "max"


class TestJoin:
    async def test_adds_a_connection_and_ends_without_ending_the_lease(self, pod):
        await pod.leased("L1")
        status, fields, _, _, writer = await pod.lease("L1", kind="Farm-Join")
        assert (status, fields["farm-lease"]) == (101, "L1")
        writer.close()
        assert (await pod.get("/readyz"))[0] == 503

    async def test_of_another_lease_or_none_is_404(self, pod):
        assert (await pod.lease("L1", kind="Farm-Join"))[0] == 404
        await pod.leased("L2")
        assert (await pod.lease("L1", kind="Farm-Join"))[0] == 404

    async def test_ends_with_the_lease(self, pod):
        _, lease_writer = await pod.leased("L1")
        reader, _ = await pod.leased("L1", kind="Farm-Join")
        lease_writer.close()
        async with asyncio.timeout(5):
            assert await reader.read() == b""

    async def test_its_byte_uses_the_lease(self, pod):
        chrome = pod.chrome
        _, lease_writer = await pod.leased("L1")
        reader, _ = await pod.leased(
            "L1", kind="Farm-Join", more=b"GET /json/list HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        lease_writer.close()
        assert (await pod.get("/readyz?wait=5"))[0] == 200
        assert pod.chrome is not chrome


class TestKey:
    async def test_is_asked_for_when_set(self, pod_with, tmp_path):
        path = tmp_path / "key"
        path.write_text("open sesame\n")
        async with pod_with(key_file=path) as pod:
            await pod.until(lambda pod: pod.busy is None)
            for shown in ((), ("Farm-Key: wrong",), ("Farm-Key: \xe9",)):
                status, _, body, _, _ = await pod.lease("L1", *shown)
                assert (status, json.loads(body)["reason"], "scope" in json.loads(body)) == (
                    403,
                    "unauthorized",
                    False,
                )
            assert pod.pod.busy is None
            await pod.leased("L1", "Farm-Key: open sesame")
            assert (await pod.lease("L1", kind="Farm-Join"))[0] == 403

    def test_is_read_again_when_it_changes(self, tmp_path):
        path = tmp_path / "key"
        path.write_text("one")
        key = KeyFile(path)
        assert key.accepts("one")
        path.write_text("three")
        assert not key.accepts("one")
        assert key.accepts("three")

    def test_an_empty_key_accepts_nobody(self, tmp_path):
        path = tmp_path / "key"
        path.write_text("\n")
        assert not KeyFile(path).accepts("")


async def test_a_key_that_cannot_be_read_serves_nobody_but_keeps_the_pod(pod_with, tmp_path):
    async with pod_with(key_file=tmp_path / "missing") as pod:
        await pod.until(lambda pod: pod.busy is None)
        status, _, body, _, _ = await pod.lease("L1")
        assert (status, json.loads(body)["reason"]) == (500, "key-unreadable")
        assert (await pod.get("/readyz"))[0] == 200


async def test_a_profile_is_the_callers_fault_for_now(pod):
    status, _, body, _, _ = await pod.lease("L1", "Farm-Profile: shop-a")
    assert (status, json.loads(body)["scope"]) == (400, "caller")
    assert pod.pod.busy is None


@pytest.mark.parametrize(
    "lines",
    [
        ["Farm-Join: L2"],
        ["Farm-Lease-Max-S: 1.5"],
        ["Farm-Lease-Max-S: 99999999999999999999"],
        ["Farm-Dials: -1"],
        ["Farm-Lease: L2"],
    ],
)
async def test_a_malformed_question_is_400_and_takes_nothing(pod, lines):
    assert (await pod.lease("L1", *lines))[0] == 400
    assert pod.pod.busy is None


async def test_lease_wants_its_upgrade(pod):
    assert (await pod.get("/lease"))[0] == 426


class TestDrain:
    async def test_a_session_goes_on_and_its_end_ends_the_agent(self, pod):
        _, writer = await pod.leased("L1", more=b"G")
        pod.pod.drain()
        assert (await pod.get("/readyz"))[0] == 503
        assert not pod.pod.drained.is_set()
        writer.close()
        async with asyncio.timeout(5):
            await pod.pod.drained.wait()
        assert pod.pod.end_of("L1") == "done"

    async def test_the_limit_ends_it(self, pod_with):
        async with pod_with(grace_s=0.05) as pod:
            await pod.until(lambda pod: pod.busy is None)
            reader, _ = await pod.leased("L1", more=b"G")
            pod.pod.drain()
            async with asyncio.timeout(5):
                assert await reader.read() == b""
                await pod.pod.drained.wait()
            assert pod.pod.end_of("L1") == "drained"

    async def test_a_sigterm_before_it_runs_ends_it(self, pod):
        early = Pod(pod.pod._launcher)
        early.drain()
        async with asyncio.timeout(5):
            await early.run()

    async def test_a_second_signal_is_at_once(self, pod):
        await pod.leased("L1", more=b"G")
        pod.pod.drain()
        pod.pod.drain()
        async with asyncio.timeout(5):
            await pod.pod.drained.wait()

    async def test_a_free_pod_closes_chrome_in_order(self, pod):
        chrome = pod.chrome
        pod.pod.drain()
        async with asyncio.timeout(5):
            await pod.pod.drained.wait()
        assert chrome.returncode == 0


class TestSpare:
    async def test_swaps_in_and_is_lifted(self, pod_with):
        async with pod_with(recycle="spare", spare_after_s=0.01) as pod:
            await pod.until(lambda pod: pod.busy is None)
            _, writer = await pod.leased("L1", more=b"G")
            await pod.until(lambda _: len(pod.chromes) == 2 and pod.chromes[1].heads)
            assert pod.chromes[1].low
            writer.close()
            assert (await pod.get("/readyz?wait=5"))[0] == 200
            assert pod.chrome is pod.chromes[1]
            assert pod.chrome.lifted
            assert pod.chromes[0].returncode == -9

    async def test_a_short_lease_does_not_wait_for_its_start(self, pod_with):
        async with pod_with(recycle="spare", spare_after_s=1000) as pod:
            await pod.until(lambda pod: pod.busy is None)
            _, writer = await pod.leased("L1", more=b"G")
            writer.close()
            assert (await pod.get("/readyz?wait=5"))[0] == 200
            assert pod.chrome is pod.chromes[1]
            assert not pod.chrome.low

    async def test_a_dead_spare_is_replaced_by_a_fresh_start(self, pod_with):
        async with pod_with(recycle="spare", spare_after_s=0.01) as pod:
            await pod.until(lambda pod: pod.busy is None)
            _, writer = await pod.leased("L1", more=b"G")
            await pod.until(lambda _: len(pod.chromes) == 2 and pod.chromes[1].heads)
            pod.chromes[1].end(-11)
            await pod.until(lambda pod: pod._states.spare is None)
            writer.close()
            assert (await pod.get("/readyz?wait=5"))[0] == 200
            assert pod.chrome is pod.chromes[2]


async def test_a_full_disk_is_retried_until_there_is_room(pod_with, monkeypatch):
    monkeypatch.setattr("farmagent.lease.states.BACKOFF_S", 0.01)
    fresh, tries = WorkDirectory.fresh, []

    def no_room_twice(self, user):
        tries.append(1)
        if len(tries) <= 2:
            raise OSError(28, "No space left on device")
        return fresh(self, user)

    monkeypatch.setattr(WorkDirectory, "fresh", no_room_twice)
    async with pod_with() as pod:
        assert (await pod.get("/readyz?wait=5"))[0] == 200
        assert len(tries) == 3


async def test_an_address_that_is_taken_names_the_remedy(pod, pod_with):
    with pytest.raises(AgentError, match="FARMAGENT_LISTEN"):
        async with pod_with(listen=f"127.0.0.1:{pod.port}"):
            raise AssertionError("never inside")
