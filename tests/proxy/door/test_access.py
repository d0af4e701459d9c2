"""Who may come in: tokens, Origins, Hosts, trusted proxies, keys. And what no log, page or metric ever shows."""

import asyncio
import ipaddress
import json
import socket

import pytest
from farmproxy.setting_values import HostPort

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
    ("http://127.0.0.1:{port}", 101),  # field case 45: the door's own host, Origin not forwarded
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
    # field case 44: a DNS name at the door, the pod's address in the Host that the pod sees
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
