"""The agent's port without a lease: probes, the long poll for "free", pages, and who is refused."""

import asyncio
import json

import pytest


async def test_ready_means_free(pod):
    status, _, body = await pod.get("/readyz")
    assert (status, json.loads(body)) == (200, {"state": "free"})
    await pod.leased()
    status, _, body = await pod.get("/readyz")
    assert (status, json.loads(body)) == (503, {"state": "leased", "reason": "busy"})


async def test_alive_has_nothing_to_do_with_free(pod):
    await pod.leased()
    assert (await pod.get("/livez"))[0] == 200


async def test_not_alive_after_three_failed_starts_and_alive_once_mended(pod_with, monkeypatch):
    monkeypatch.setattr("farmagent.lease.states.BACKOFF_S", 0.05)
    async with pod_with() as pod:
        pod.fail.extend([True] * 3)
        await pod.until(lambda pod: pod.state == "broken")
        assert (await pod.get("/livez"))[0] == 500
        status, _, body = await pod.get("/readyz?wait=10")
        assert (status, json.loads(body)) == (200, {"state": "free"})
        assert (await pod.get("/livez"))[0] == 200


async def test_healthy_is_the_other_meaning_but_waiting_always_asks_for_free(pod_with):
    async with pod_with(ready="healthy") as pod:
        await pod.until(lambda pod: pod.busy is None)
        await pod.leased()
        assert (await pod.get("/readyz"))[0] == 200
        assert (await pod.get("/readyz?wait=0"))[0] == 503


async def test_wait_answers_as_soon_as_free_and_tells_the_end(pod):
    _, writer = await pod.leased("L7", more=b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
    asked = pod.begin(pod.get("/readyz?wait=30&lease=L7"))
    writer.close()
    status, _, body = await asked
    assert (status, json.loads(body)) == (200, {"state": "free", "lease": "L7", "end": "done"})


async def test_wait_ends_after_its_seconds(pod):
    await pod.leased("L1")
    status, _, body = await pod.get("/readyz?wait=0.05&lease=L1")
    assert (status, json.loads(body)) == (
        503,
        {"state": "leased", "reason": "busy", "lease": "L1", "end": None},
    )


async def test_a_draining_agent_answers_at_once(pod):
    await pod.leased()
    asked = pod.begin(pod.get("/readyz?wait=300"))
    pod.pod.drain()
    status, _, body = await asked
    assert (status, json.loads(body)["reason"]) == (503, "draining")


@pytest.mark.parametrize("wait", ["x", "-1", "inf", "nan", "601", ""])
async def test_wait_must_be_a_sane_number(pod, wait):
    assert (await pod.get(f"/readyz?wait={wait}"))[0] == 400


async def test_one_connection_serves_many_questions(pod):
    reader, writer = await pod.connect()
    for _ in range(3):
        writer.write(b"GET /readyz?wait=1 HTTP/1.1\r\nHost: 127.0.0.1:9222\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(len('{"state":"free"}\n'))
    writer.close()


@pytest.mark.parametrize(
    "host", ["pods.example", "localhost:9222", "127.0.0.1.evil.test:80", "[::g]:9222", ""]
)
async def test_a_host_that_is_no_address_is_refused(pod, host):
    assert (await pod.get("/livez", host=host))[0] == 403


@pytest.mark.parametrize("host", ["10.1.2.3:9222", "10.1.2.3", "[fd00::9]:9222", "[fd00::9]"])
async def test_an_address_is_a_host(pod, host):
    assert (await pod.get("/livez", host=host))[0] == 200


async def test_any_origin_is_refused_and_takes_no_lease(pod):
    assert (await pod.get("/readyz", "Origin: http://10.0.0.1:9222"))[0] == 403
    status, _, body, _, _ = await pod.lease("L1", "Origin: null")
    assert (status, json.loads(body)["reason"]) == (403, "origin")
    assert pod.pod.busy is None


async def test_version_at_any_time_and_its_socket_is_a_lease_of_its_own(pod):
    await pod.leased()
    status, _, body = await pod.get("/json/version")
    page = json.loads(body)
    assert (status, page["Browser"]) == (200, "Fake/1")
    assert page["webSocketDebuggerUrl"] == "ws://10.0.0.1:9222/devtools/browser/farm"


async def test_chrome_cannot_be_reached_without_a_lease(pod):
    for path in ("/json/list", "/devtools/browser/abc", "/render"):
        assert (await pod.get(path, "Connection: Upgrade", "Upgrade: websocket"))[0] == 404
    assert pod.chrome.heads[1:] == []  # the first is the agent's own


async def test_metrics_count_and_name_no_lease(pod):
    _, writer = await pod.leased("SECRET", more=b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
    writer.close()
    await pod.get("/readyz?wait=5")
    _, _, body = await pod.get("/metrics")
    lines = body.decode().splitlines()
    assert 'farmagent_state{state="free"} 1.0' in lines
    assert 'farmagent_leases_total{end="done"} 1.0' in lines
    assert 'farmagent_leases_total{end="max"} 0.0' in lines
    assert 'farmagent_chrome_starts_total{why="recycle"} 1.0' in lines
    assert "farmagent_recycle_seconds_count 1.0" in lines
    assert b"SECRET" not in body


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n\r\n",  # no Host
    b"GET /livez HTTP/1.1\r\nHost: 10.0.0.1\r\nHost: 10.0.0.2\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: 10.0.0.1\r\nTransfer-Encoding: x\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost 10.0.0.1\r\n\r\n",
]


@pytest.mark.parametrize("data", GARBAGE)
async def test_garbage_is_answered_once_and_closed(pod, data):
    reader, writer = await pod.connect()
    writer.write(data)
    async with asyncio.timeout(5):
        answer = await reader.read()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
    assert b"Connection: close" in answer
    writer.close()
    assert (await pod.get("/readyz"))[0] == 200


async def test_a_head_over_the_limit_is_431(pod):
    reader, writer = await pod.connect()
    writer.write(b"GET /livez HTTP/1.1\r\nHost: 10.0.0.1\r\nX: " + b"a" * 20_000)
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"HTTP/1.1 431")
    writer.close()


async def test_a_head_that_never_ends_is_408(pod_with):
    async with pod_with(head_timeout_s=0.05) as pod:
        reader, writer = await pod.connect()
        writer.write(b"GET /livez HT")
        async with asyncio.timeout(5):
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_connections_are_bounded(pod_with):
    async with pod_with(connection_limit=2) as pod:
        first, second = await pod.connect(), await pod.connect()
        first[1].write(b"GET /livez HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n")
        second[1].write(b"GET /livez HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n")
        await first[0].readuntil(b"\r\n\r\n")
        await second[0].readuntil(b"\r\n\r\n")
        reader, _ = await pod.connect()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        first[1].close()
        second[1].close()
