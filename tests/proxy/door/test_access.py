"""Who may come in: tokens, Origins, Hosts, trusted proxies, keys. And what no log, page or metric ever shows."""

import asyncio
import ipaddress
import json
import socket

import pytest
from farmproxy.config.parsers import HostPort

TOKENS = "alice:s3cret-a\nbob:s3cret-b\n"


@pytest.fixture
async def guarded(new_farm, tmp_path):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    return new_farm(tokens_file=str(path))


@pytest.mark.parametrize(
    "target", ["/json/version", "/json", "/leases", "/leases/01M8NWAAWR7VZ1W090NQPYFS4R"]
)
async def test_a_token_is_needed_everywhere(guarded, target):
    for presented in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic czNjcmV0LWE="}):
        caller = await guarded.get(target, **presented)
        assert await caller.refusal() == (401, "unauthorized")
    caller = await guarded.get(target + "?token=s3cret")
    assert await caller.refusal() == (401, "unauthorized")


async def test_a_token_counts_in_query_and_header(guarded, fakes):
    pod = fakes.Pod("a", fakes.serve_render)
    await guarded.add(pod)
    for target, fields in (
        ("/render?token=s3cret-a", {}),
        ("/render", {"Authorization": "bearer s3cret-a"}),
        ("/render", {"token": "s3cret-a"}),
        ("/render", {"Farm-Token": "s3cret-a"}),
    ):
        caller = await guarded.caller(guarded.request("POST", target, b"{}", **fields))
        assert (await caller.answer())[0] == 200
        await guarded.idle()
    caller = await guarded.upgrade("/")
    assert await caller.refusal() == (401, "unauthorized")
    for shake in pod.shakes:
        assert b"s3cret" not in shake.head + shake.request
        assert b"uthorization" not in shake.request


async def test_discovery_keeps_the_token_in_the_socket_url(guarded):
    caller = await guarded.get("/json/version/?token=s3cret-a")
    told = json.loads((await caller.answer())[2])
    assert told["webSocketDebuggerUrl"].endswith("/devtools/browser/farm?token=s3cret-a")


async def test_no_secret_in_log_metrics_or_status(guarded, fakes):
    await guarded.add(fakes.Pod("a"))
    caller = await guarded.upgrade("/?token=s3cret-a&label=mine")
    await caller.head()
    wrong = await guarded.get("/leases/s3cret-b?token=s3cret-wrong")
    _, _, body = await wrong.answer()
    caller.close()
    await guarded.idle()
    shown = json.dumps(guarded.log.lines, default=str) + guarded.proxy.metrics_text().decode() + body.decode()
    key = guarded.pods[0].shakes[0].fields["farm-public-base"].rpartition(".")[2]
    assert "s3cret" not in shown
    assert key not in shown
    assert "mine" in json.dumps(guarded.log.lines, default=str)


async def test_a_lease_belongs_to_its_tokens_name(guarded, fakes):
    async def leased(pod, shake):
        shake.accept(pod)
        await shake.reader.read()

    await guarded.add(fakes.Pod("a", leased))
    api = await guarded.caller(guarded.request("POST", "/leases?token=s3cret-a", b""))
    told = json.loads((await api.answer())[2])
    path = f"/leases/{told['id']}"
    key = told["urls"]["http"].rpartition(".")[2]
    assert len(bytes.fromhex(key)) == 16
    for method in ("GET", "DELETE"):
        caller = await guarded.caller(guarded.request(method, path + "?token=s3cret-b"))
        assert await caller.refusal() == (404, "not-found")
    caller = await guarded.get("/leases?token=s3cret-b")
    assert json.loads((await caller.answer())[2]) == {"leases": []}
    caller = await guarded.get("/leases?token=s3cret-a")
    listed = (await caller.answer())[2]
    assert [lease["id"] for lease in json.loads(listed)["leases"]] == [told["id"]]
    assert key.encode() not in listed
    caller = await guarded.get(f"{path}.{key}")
    assert json.loads((await caller.answer())[2])["state"] == "leased"
    caller = await guarded.get(f"{path}.{'0' * 32}")
    assert await caller.refusal() == (404, "not-found")
    caller = await guarded.caller(guarded.request("DELETE", f"{path}.{key}"))
    assert (await caller.head())[0] == 204


ORIGINS = [
    ("http://127.0.0.1:{port}", 101),  # the door's own host, Origin not forwarded
    ("https://127.0.0.1:{port}", 101),
    ("http://127.0.0.1", 403),
    ("http://evil.example", 403),
    ("null", 403),
    ("https://app.example", 101),
    ("https://app.example.evil.example", 403),
    ("chrome-extension://abc", 403),
]


@pytest.mark.parametrize(("origin", "status"), ORIGINS)
async def test_origins(new_farm, fakes, origin, status):
    farm = new_farm(origins=frozenset({"https://app.example"}))
    pod = fakes.Pod("a")
    await farm.add(pod)
    caller = await farm.upgrade("/", Origin=origin.format(port=farm.address.port))
    if status == 403:
        assert await caller.refusal() == (403, "origin")
        assert pod.shakes == []
    else:
        assert (await caller.head())[0] == 101
        assert b"rigin" not in pod.shakes[0].request


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("10.1.2.3", 200),
        ("[::1]:9222", 200),
        ("localhost:80", 200),
        ("a.localhost", 200),
        ("LocalHost", 200),
        ("farm.example:9222", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ],
)
async def test_without_tokens_the_host_must_be_plain(new_farm, host, status):
    farm = new_farm(hosts=frozenset({"farm.example"}))
    caller = await farm.caller(f"GET /json/version HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await caller.answer()
    assert answer[0] == status
    if status == 200:
        assert json.loads(answer[2])["webSocketDebuggerUrl"] == f"ws://{host}/devtools/browser/farm"


async def test_with_tokens_any_host_will_do(guarded, fakes):
    # a DNS name at the door, the pod's address in the Host that the pod sees
    pod = fakes.Pod("a")
    await guarded.add(pod)
    head = "GET /?token=s3cret-a HTTP/1.1\r\nHost: lease.farm.svc.cluster.local:3000\r\n"
    caller = await guarded.caller((head + "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n").encode())
    assert (await caller.head())[0] == 101
    assert f"Host: 127.0.0.1:{pod.port}\r\n".encode() in pod.shakes[0].request
    assert b"svc.cluster" not in pod.shakes[0].request
    base = pod.shakes[0].fields["farm-public-base"]
    assert base.startswith("ws://lease.farm.svc.cluster.local:3000/leases/")


async def test_forwarded_headers_count_from_trusted_proxies_only(new_farm):
    forwarded = {"X_Forwarded_Host": "farm.example", "X_Forwarded_Proto": "https"}
    trusting = new_farm(
        trusted_proxies=(ipaddress.ip_network("127.0.0.0/8"),), hosts=frozenset({"farm.example"})
    )
    caller = await trusting.get("/json/version", Origin="https://farm.example", **forwarded)
    told = json.loads((await caller.answer())[2])
    assert told["webSocketDebuggerUrl"] == "wss://farm.example/devtools/browser/farm"
    wary = new_farm(hosts=frozenset({"farm.example"}))
    caller = await wary.get("/json/version", **forwarded)
    told = json.loads((await caller.answer())[2])
    assert told["webSocketDebuggerUrl"].startswith(f"ws://{wary.address}/")


TRUSTED = (ipaddress.ip_network("127.0.0.0/8"),)
PREFIXED = [
    # setting, X-Forwarded-Prefix, what stands in front of the door's own path, what the ingress hands on of it
    ("", "/farm", "/farm", ""),
    ("", "/farm/", "/farm", "/farm"),
    ("", "/outer, /inner", "/outer/inner", ""),
    ("/set", None, "/set", ""),
    ("/set", None, "/set", "/set"),
    ("/set", "/told", "/told", ""),
    ("/set", "/", "", ""),
]


@pytest.mark.parametrize(("setting", "told", "shown", "kept"), PREFIXED)
async def test_a_door_behind_a_path_says_so_in_every_url(new_farm, fakes, setting, told, shown, kept):
    async def leased(pod, shake):
        shake.accept(pod)
        await shake.reader.read()

    farm = new_farm(trusted_proxies=TRUSTED, prefix=setting)
    pod = fakes.Pod("a", leased)
    await farm.add(pod)
    fields = {"X_Forwarded_Host": "127.0.0.1", "X_Forwarded_Prefix": told} if told is not None else {}
    host = "127.0.0.1" if fields else str(farm.address)
    caller = await farm.get(f"{kept}/json/version?label=x", **fields)
    answer = json.loads((await caller.answer())[2])
    assert answer["webSocketDebuggerUrl"] == f"ws://{host}{shown}/devtools/browser/farm?label=x"
    api = await farm.caller(farm.request("POST", f"{kept}/leases", b"", **fields))
    urls = json.loads((await api.answer())[2])["urls"]
    assert urls["http"].startswith(f"http://{host}{shown}/leases/")
    assert urls["browser_ws"].startswith(f"ws://{host}{shown}/leases/")
    assert pod.shakes[0].fields["farm-public-base"] == urls["http"].replace("http", "ws", 1)
    path = "/leases" + urls["http"].partition("/leases")[2]
    ended = await farm.caller(farm.request("DELETE", kept + path, **fields))
    assert (await ended.head())[0] == 204


async def test_a_prefix_counts_from_trusted_proxies_only_and_must_be_a_path(new_farm):
    wary = new_farm()
    caller = await wary.get("/json/version", X_Forwarded_Prefix="/farm")
    told = json.loads((await caller.answer())[2])
    assert told["webSocketDebuggerUrl"] == f"ws://{wary.address}/devtools/browser/farm"
    trusting = new_farm(trusted_proxies=TRUSTED)
    for wrong in ("farm", "//evil.example", "/a b", "/a?b", "/..", "/json", "/" + "a" * 200):
        caller = await trusting.get("/json/version", X_Forwarded_Prefix=wrong)
        assert await caller.refusal() == (400, "bad-request"), wrong


@pytest.mark.parametrize("given", ["127.0.0.1", "::1", "localhost"])
async def test_a_door_on_loopback_answers_on_both(new_farm, given):
    farm = new_farm(door=HostPort(given, 0))
    for host in ("127.0.0.1", "::1"):
        reader, writer = await asyncio.open_connection(host, farm.address.port)
        authority = str(HostPort(host, farm.address.port))
        writer.write(f"GET /json/version HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        assert f'"webSocketDebuggerUrl":"ws://{authority}/devtools/browser/farm"'.encode() in answer
        writer.close()
        await writer.wait_closed()


async def test_a_loopback_that_another_has_is_named(new_farm):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        farm = new_farm(door=HostPort("127.0.0.1", port))
        (line,) = farm.log.of("door-on-one-loopback")
        assert (line["address"], line["lacks"]) == (f"127.0.0.1:{port}", f"[::1]:{port}")
        caller = await farm.get("/json/version")
        assert (await caller.answer())[0] == 200


async def test_the_callers_own_farm_headers_never_reach_a_pod(new_farm, fakes, tmp_path):
    key = tmp_path / "key"
    key.write_text("agents-key\n")
    farm = new_farm(agent_key_file=str(key))
    pod = fakes.Pod("a")
    await farm.add(pod)
    caller = await farm.upgrade("/", Farm_Lease="x", Farm_Key="mine", Farm_Label="l", farm_pod="y")
    await caller.head()
    assert b"farm-" not in pod.shakes[0].request.lower()
    assert pod.shakes[0].fields["farm-key"] == "agents-key"


# Web pages of an allowed Origin: their browsers ask first (Fetch standard, CORS) and show them what they may read

PAGE = "https://app.example"
UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.fixture
async def for_pages(new_farm):
    return new_farm(origins=frozenset({PAGE}), head_timeout_s=0.5)


def assert_readable(fields):
    assert fields["access-control-allow-origin"] == PAGE
    assert fields["vary"] == "Origin"
    assert {"Farm-Lease", "Farm-Pod", "Farm-Page-Status", "Retry-After"} <= set(
        fields["access-control-expose-headers"].split(", ")
    )


@pytest.mark.parametrize(
    "target", ["/render", "/leases", "/leases/01M8NWAAWR7VZ1W090NQPYFS4R.00/json", "/no?x=1"]
)
async def test_a_preflight_of_an_allowed_origin_is_answered(for_pages, target):
    asked = {
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "authorization,farm-pool",
    }
    caller = await for_pages.caller(for_pages.request("OPTIONS", target, Origin=PAGE, **asked))
    status, fields = await caller.head()
    assert status == 204
    assert_readable(fields)
    assert {"GET", "POST", "DELETE"} <= set(fields["access-control-allow-methods"].split(", "))
    assert fields["access-control-allow-headers"] == "authorization,farm-pool"
    assert int(fields["access-control-max-age"]) > 0
    caller.send(for_pages.request("OPTIONS", target, Origin="https://evil.example", **asked))
    status, fields, _ = await caller.answer()
    assert status == 403
    assert "access-control-allow-origin" not in fields


async def test_a_preflight_carries_no_body_and_only_pages_send_one(for_pages):
    asked = {"Origin": PAGE, "Access_Control_Request_Method": "POST"}
    caller = await for_pages.caller(for_pages.request("OPTIONS", "/render", b"GET / HTTP/1.1", **asked))
    assert (await caller.answer())[0] == 400
    caller = await for_pages.caller(for_pages.request("OPTIONS", "/render"))
    assert (await caller.answer())[0] == 404


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", "/json/version", None, 200),
        ("GET", "/leases", None, 200),
        ("GET", "/nowhere", None, 404),
        ("GET", "/json/version?colour=1", None, 400),
        ("POST", "/render?hold=0", b"{}", 503),
        ("POST", "/leases?hold=0", b"{}", 503),
        ("POST", "/leases", b"{", 400),
    ],
)
async def test_answers_and_refusals_are_readable_by_an_allowed_page(for_pages, method, target, body, status):
    caller = await for_pages.caller(for_pages.request(method, target, body, Origin=PAGE))
    answer = await caller.answer()
    assert answer[0] == status
    assert_readable(answer[1])
    plain = await for_pages.caller(for_pages.request(method, target, body))
    assert "access-control-allow-origin" not in (await plain.answer())[1]


async def test_a_kept_connection_forgets_the_page_of_the_request_before(for_pages):
    caller = await for_pages.get("/json", Origin=PAGE)
    assert_readable((await caller.answer())[1])
    caller.send(for_pages.request("GET", "/json"))
    assert "access-control-allow-origin" not in (await caller.answer())[1]


async def test_a_silent_caller_is_not_told_of_the_page_that_had_its_descriptor(for_pages):
    pages = [await for_pages.get("/json", Origin=PAGE) for _ in range(6)]
    for each in pages:
        assert_readable((await each.answer())[1])
        each.close()
    plain = await for_pages.get("/json")  # whose answer comes after the door has seen those go
    assert (await plain.answer())[0] == 200
    silent = [await for_pages.caller() for _ in range(8)]
    for each in silent:
        status, fields, _ = await each.answer()
        assert status == 408
        assert "access-control-allow-origin" not in fields


async def test_the_agent_is_told_whose_page_may_read_its_answers(for_pages, fakes):
    pod = fakes.Pod("a", fakes.serve_render, fakes.hang_leased)
    joins = []

    async def join(pod, shake):
        joins.append(shake.fields)
        shake.accept(pod)

    pod.joins = join
    await for_pages.add(pod)
    caller = await for_pages.caller(for_pages.request("POST", "/render", b"{}", Origin=PAGE))
    assert (await caller.answer())[0] == 200
    assert pod.shakes[0].fields["farm-allow-origin"] == PAGE
    assert b"rigin" not in pod.shakes[0].request
    await for_pages.idle()
    api = await for_pages.caller(for_pages.request("POST", "/leases", b"{}", Origin=PAGE))
    status, fields, body = await api.answer()
    assert status == 201
    assert_readable(fields)
    assert "farm-allow-origin" not in pod.shakes[1].fields  # every joining page names its own
    path = json.loads(body)["urls"]["http"].partition(str(for_pages.address))[2]
    for origin in ({"Origin": PAGE}, {}):
        joined = await for_pages.get(path + "/json", **origin)
        await for_pages.until(lambda: joins)
        assert joins.pop().get("farm-allow-origin", "") == origin.get("Origin", "")
        joined.close()


async def test_a_held_pages_refusal_is_readable(for_pages):
    for path in ("/render", "/leases"):
        caller = await for_pages.caller(for_pages.request("POST", path + "?hold=0.2", b"{}", Origin=PAGE))
        status, fields, _ = await caller.answer()
        assert status == 503
        assert_readable(fields)


# Upgrades that HTTP clients offer with every request, and that nobody here takes

H2C = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2_Settings": "AAMAAABkAAQAAP__"}


@pytest.mark.parametrize("frame", ["length", "chunked", "expect"])
async def test_an_offer_of_http2_is_ignored(farm, fakes, frame):
    async def render(pod, shake):
        shake.accept(pod)
        await shake.read_request()
        body = await shake.reader.readuntil(b"}")
        shake.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    await farm.add(fakes.Pod("a", render))
    for target in ("/json/version", "/leases"):
        caller = await farm.get(target, **H2C)
        assert (await caller.answer())[0] == 200
    extra = {"Expect": "100-continue"} if frame == "expect" else {}
    if frame == "chunked":
        data = farm.request("POST", "/render", Transfer_Encoding="chunked", **H2C) + b"2\r\n{}\r\n0\r\n\r\n"
    else:
        data = farm.request("POST", "/render", b"{}", **H2C, **extra)
    caller = await farm.caller(data)
    if frame == "expect":
        assert (await caller.head())[0] == 100
    status, _, body = await caller.answer()
    assert status == 200
    assert body.endswith(b"{}")


async def test_leases_ignore_an_offer_of_http2(farm, fakes):
    await farm.add(fakes.Pod("a", fakes.hang_leased))
    caller = await farm.caller(farm.request("POST", "/leases", b"{}", **H2C))
    assert (await caller.answer())[0] == 201


async def test_discovery_reserves_nothing_and_every_socket_is_a_browser_of_its_own(farm, fakes):
    pods = [fakes.Pod(name) for name in "abc"]
    await farm.add(*pods)

    async def discover():
        caller = await farm.get("/json/version")
        return "/" + json.loads((await caller.answer())[2])["webSocketDebuggerUrl"].split("/", 3)[3]

    first, second, _never_used = [await discover() for _ in range(3)]
    assert farm.counts().demand == 0
    for target in (first, second, first):  # the last one takes the first's URL while that one is live
        assert (await (await farm.upgrade(target)).head())[0] == 101
    assert farm.counts().leases == 3
    assert [len(pod.shakes) for pod in pods] == [1, 1, 1]


@pytest.mark.parametrize("target", ["/json/version", "/json/list", "/devtools/browser"])
async def test_a_clusters_own_name_of_the_door_serves_discovery_and_sockets(new_farm, fakes, target):
    farm = new_farm(hosts=frozenset({"lease.farm.svc.cluster.local"}))
    await farm.add(fakes.Pod("a"))
    upgrade = UPGRADE if target.startswith("/dev") else ""
    head = f"GET {target} HTTP/1.1\r\nHost: lease.farm.svc.cluster.local:3000\r\n{upgrade}\r\n"
    caller = await farm.caller(head.encode())
    assert (await caller.head())[0] == (101 if upgrade else 200)
