"""The generators are measured code too: a fake pod that lied would make every figure a lie."""

import json
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from farmctl.bench.fakes import heads
from farmctl.bench.fakes.epoll import Loop
from farmctl.bench.fakes.fake_farm import listed_pod
from farmctl.bench.fakes.fake_pods import FakePods, address
from farmctl.bench.fakes.fake_slices import FakeSlices
from farmctl.bench.load import proxies_under_test
from farmctl.bench.load.crowds import Crowd
from farmctl.bench.load.plans import Plan
from farmctl.bench.load.processes import Cores, Usage
from farmctl.bench.measures import fleet
from farmctl.bench.stage import Stage


@pytest.fixture
def farm():
    """Three pods and their slices on a loop of their own."""
    loop = Loop()
    pods = FakePods(loop, 3)
    slices = FakeSlices(loop, pods.pods, pods.port, late_s=0.0)

    def tick():  # a loop with nothing due would notice its stop a second late
        loop.after(0.02, tick)

    tick()
    thread = threading.Thread(target=loop.run)
    thread.start()
    yield SimpleNamespace(pods=pods, port=pods.port, api=slices.port)
    loop.stop()
    thread.join()
    pods.close()
    slices.close()


def talk(where, *pieces):
    """Send the pieces one after another; return the socket and what came by the first pause."""
    sock = socket.create_connection(where, timeout=5)
    for piece in pieces:
        sock.sendall(piece)
    return sock


def read_head(sock):
    data = b""
    while heads.END not in data:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return data


LEASE = b"GET /lease HTTP/1.1\r\nHost: pod\r\nUpgrade: farm-lease\r\nFarm-Lease: L%d\r\nFarm-Dials: 1\r\n\r\n"
JOB = b"GET /devtools/browser/x HTTP/1.1\r\nHost: pod\r\nUpgrade: websocket\r\n\r\n"


def test_addresses_are_loopback_distinct_and_not_a_real_farm_s():
    every = {address(i) for i in range(120_000)}
    assert len(every) == 120_000
    assert not any(one.startswith(("127.0.", "127.1.")) for one in every)
    assert all(0 <= int(part) <= 254 for one in every for part in one.split("."))


def test_a_lease_a_job_and_the_pod_is_free_when_the_connection_closes(farm):
    pod = (address(1), farm.port)
    with talk(pod, LEASE % 1) as lease:
        answer = read_head(lease)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"Farm-Pod: farm/pod-1/uid-1\r\n" in answer
        with talk(pod, LEASE % 2) as second:
            assert read_head(second).startswith(b"HTTP/1.1 409 ")
        lease.sendall(JOB[:10])
        lease.sendall(JOB[10:])
        answer = read_head(lease)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"Farm-Lease: L1\r\nFarm-Dials: 1\r\nX-Free-At: " in answer
        lease.sendall(b"hello")
        assert lease.recv(5) == b"hello"
        waiter = talk(pod, b"GET /readyz?wait=5&lease=L1 HTTP/1.1\r\nHost: pod\r\n\r\n")
    with waiter:
        answer = read_head(waiter)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"end": "done"' in answer
    assert (farm.pods.leases, farm.pods.doubles) == (1, 1)


def test_a_question_that_was_answered_long_ago_does_not_end_the_next_one_on_its_connection(farm):
    pod = (address(1), farm.port)
    with talk(pod, b"GET /readyz?wait=0.5 HTTP/1.1\r\nHost: pod\r\n\r\n") as asker:
        assert read_head(asker).startswith(b"HTTP/1.1 200 ")
        with talk(pod, LEASE % 1) as first:
            read_head(first)
            asker.sendall(b"GET /readyz?wait=0.3 HTTP/1.1\r\nHost: pod\r\n\r\n")
        assert read_head(asker).startswith(b"HTTP/1.1 200 ")
        with talk(pod, LEASE % 2) as second:
            read_head(second)
            asker.sendall(b"GET /readyz?wait=5 HTTP/1.1\r\nHost: pod\r\n\r\n")
            asker.settimeout(1)
            with pytest.raises(TimeoutError):
                asker.recv(100)
        asker.settimeout(5)
        assert read_head(asker).startswith(b"HTTP/1.1 200 ")


def test_a_recycling_pod_is_not_free(farm):
    plan = Plan((address(2), farm.port), together=1, seconds=0.05, wishes={"recycle_ms": 60_000})
    figures = Crowd(plan).run()
    assert figures["done"] == 1
    assert set(figures["errors"]) <= {"status 503"}
    with talk((address(2), farm.port), b"GET /readyz HTTP/1.1\r\nHost: pod\r\n\r\n") as sock:
        assert b"recycling" in read_head(sock)


def test_a_stream_is_whole(farm):
    plan = Plan(
        (address(0), farm.port), step="stream", together=1, seconds=0.01, wishes={"stream": 3_000_001}
    )
    figures = Crowd(plan).run()
    assert figures["errors"] == {}
    assert figures["streamed"] > 0
    assert figures["streamed"] <= 3_000_001 * figures["done"]


def test_callers_time_renders_and_round_trips(farm):
    door = (address(0), farm.port)
    render = Crowd(
        Plan(door, step="render", together=1, seconds=0.1, body=2000, wishes={"bytes": 20_480})
    ).run()
    assert render["errors"] == {}
    assert render["done"] == render["begun"] == render["total_ms"]["count"] == render["grant_ms"]["count"]
    trips = Crowd(Plan(door, together=1, seconds=0.05, trips=5, body=500)).run()
    assert trips["errors"] == {}
    assert trips["trip_ms"]["count"] == 5 * trips["done"]
    assert 0 < trips["trip_ms"]["p50"] <= trips["trip_ms"]["p99"]


def test_arrivals_are_open_loop(farm):
    plan = Plan((address(0), farm.port), step="connect", rate=200.0, even=True, seconds=0.2475)
    figures = Crowd(plan).run()
    assert figures["begun"] == 50  # one at once, then 49 and a half periods


def test_a_refused_connection_is_counted_not_raised():
    closed = proxies_under_test.free_port()
    figures = Crowd(Plan(("127.0.0.1", closed), together=1, seconds=0.05)).run()
    assert figures["done"] == 0
    assert list(figures["errors"]) == ["connecting: ConnectionRefusedError"]


def test_slices_are_listed_in_pages_and_a_late_watch_misses_nothing(farm):
    api = ("127.0.0.1", farm.api)
    path = b"/apis/discovery.k8s.io/v1/namespaces/farm/endpointslices"
    with talk(api, b"GET %b?limit=1 HTTP/1.1\r\nHost: a\r\n\r\n" % path) as sock:
        data = read_head(sock)
        listed = json.loads(data.partition(heads.END)[2])
    (one,) = listed["items"]
    assert listed["metadata"]["continue"] == ""
    assert [pod["conditions"]["ready"] for pod in one["endpoints"]] == [True] * 3
    assert one["ports"] == [{"name": "cdp", "port": farm.port, "protocol": "TCP"}]
    since = listed["metadata"]["resourceVersion"].encode()
    lease = talk((address(1), farm.port), LEASE % 1)
    with (
        lease,
        talk(api, b"GET %b?watch=1&resourceVersion=%b HTTP/1.1\r\nHost: a\r\n\r\n" % (path, since)) as sock,
    ):
        data = read_head(sock)
        while b"\n" not in data.partition(heads.END)[2].partition(b"\r\n")[2]:
            data += sock.recv(65536)
    event = json.loads(data.partition(heads.END)[2].split(b"\r\n")[1])
    assert event["type"] == "MODIFIED"
    assert [pod["conditions"]["ready"] for pod in event["object"]["endpoints"]] == [True, False, True]


def test_a_real_pod_can_be_listed():
    pod, port = listed_pod("127.8.0.1:1234/farm/name/uid")
    assert (pod.address, port, pod.name, pod.uid) == ("127.8.0.1", 1234, "name", "uid")


def test_usage_of_this_process_grows(tmp_path):
    before = Usage.of(os.getpid())
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    after = Usage.of(os.getpid())
    assert after.cpu_s - before.cpu_s >= 0.03
    assert after.descriptors > 2
    assert after.peak_rss_mib >= after.rss_mib * 0.5


def test_cores_are_never_empty():
    cores = Cores.split()
    assert cores.proxy
    assert cores.generators


def test_the_fleet_fits_the_descriptors(monkeypatch):
    stage = Stage(1, False, print)
    monkeypatch.setattr(fleet.resource, "getrlimit", lambda _: (20_000, 20_000))
    pods, rate, seconds = fleet.scale(stage)
    assert (pods, rate, seconds) == (8_000, 1_160.0, 60.0)
    monkeypatch.setattr(fleet.resource, "getrlimit", lambda _: (4_096, 4_096))
    pods, rate, _ = fleet.scale(stage)
    assert 4_090 <= fleet.descriptors(pods) <= 4_096
    assert pods * (1 + 6.4 / 6.9 + 2 * fleet.HELD_A_POD) + fleet.SPARE_DESCRIPTORS == pytest.approx(
        4_096, abs=5
    )
    assert rate == pytest.approx(1_160.0 * pods / 8_000)


def test_haproxy_gets_one_job_a_server():
    farm = SimpleNamespace(pods=2, pod_port=99)
    text = proxies_under_test.configuration(farm, 7, server="check", backend="  option httpchk", defaults="")
    assert "  server p1 127.16.0.2:99 maxconn 1 check\n" in text
    assert "  balance first\n  option httpchk\n" in text
