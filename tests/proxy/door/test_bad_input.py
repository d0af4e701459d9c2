"""What must be refused at once, and what looks odd and is legal. Nothing of it reaches a pod."""

import asyncio
import json
import random
from urllib.parse import urlencode

import pytest
from farmproxy.config.parsers import HostPort

HOST = b"Host: 127.0.0.1\r\n"
UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
SOCKET = b"GET /devtools/browser HTTP/1.1\r\n"

BAD = {
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "bad-request"),
    "binary": (b"\xff\xfe\x00garbage", 400, "bad-request"),
    "words": (b"hello there\r\n", 400, "bad-request"),
    "http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http-version"),
    "http3": (b"GET / HTTP/3.0\r\n", 505, "http-version"),
    "nul": (b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 400, "bad-request"),
    "bare-lf": (b"GET / HTTP/1.1\nHost: a\n\n", 400, "bad-request"),
    "bare-cr": (b"GET / HTTP/1.1\rHost: a\r\n", 400, "bad-request"),
    "folded": (SOCKET + HOST + UPGRADE + b"X-A: 1\r\n two\r\n\r\n", 400, "bad-request"),
    "folded-tab": (SOCKET + HOST + UPGRADE + b"X-A: 1\r\n\ttwo\r\n\r\n", 400, "bad-request"),
    "space-colon": (SOCKET + b"Host : 127.0.0.1\r\n" + UPGRADE + b"\r\n", 400, "bad-request"),
    "no-colon": (SOCKET + HOST + UPGRADE + b"nonsense\r\n\r\n", 400, "bad-request"),
    "no-host": (SOCKET + UPGRADE + b"\r\n", 400, "bad-request"),
    "empty-host": (SOCKET + b"Host:\r\n" + UPGRADE + b"\r\n", 400, "bad-request"),
    "odd-host": (SOCKET + b"Host: a b\r\n" + UPGRADE + b"\r\n", 400, "bad-request"),
    "two-hosts": (SOCKET + HOST + HOST + UPGRADE + b"\r\n", 400, "bad-request"),
    "two-lengths": (
        b"POST /render HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        400,
        "bad-request",
    ),
    "length-list": (
        b"POST /render HTTP/1.1\r\n" + HOST + b"Content-Length: 2, 2\r\n\r\n{}",
        400,
        "bad-request",
    ),
    "length-sign": (
        b"POST /render HTTP/1.1\r\n" + HOST + b"Content-Length: +2\r\n\r\n{}",
        400,
        "bad-request",
    ),
    "two-encodings": (
        b"POST /render HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "bad-request",
    ),
    "both": (
        b"POST /render HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
        400,
        "bad-request",
    ),
    "odd-encoding": (
        b"POST /render HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n",
        400,
        "bad-request",
    ),
    "fragment": (b"GET /json#x HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "connect": (b"CONNECT a:443 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "userinfo": (b"GET http://a@b/json HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad-request"),
    "long-line": (b"GET /" + b"a" * 20_000, 431, "head-too-large"),
    "long-head": (SOCKET + HOST + b"X: " + b"a" * 20_000, 431, "head-too-large"),
    "many-lines": (SOCKET + HOST + b"X: a\r\n" * 120 + b"\r\n", 431, "head-too-large"),
    "unknown-path": (b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n", 404, "not-found"),
    "json-new": (b"PUT /json/new HTTP/1.1\r\n" + HOST + b"\r\n", 404, "not-found"),
    "dots": (b"GET /json/../render HTTP/1.1\r\n" + HOST + b"\r\n", 404, "not-found"),
    "no-upgrade": (SOCKET + HOST + b"\r\n", 400, "bad-request"),
    "get-render": (b"GET /render HTTP/1.1\r\n" + HOST + b"\r\n", 404, "not-found"),
    "body-on-get": (b"GET /json HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}", 400, "bad-request"),
    "upgrade-with-body": (SOCKET + HOST + UPGRADE + b"Content-Length: 2\r\n\r\n{}", 400, "bad-request"),
    "large-body": (
        b"POST /render HTTP/1.1\r\n" + HOST + b"Content-Length: 262145\r\n\r\n",
        413,
        "body-too-large",
    ),
    "old-lease": (b"POST /render HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", 505, "http-version"),
    "large-api-body": (
        b"POST /leases HTTP/1.1\r\n" + HOST + b"Content-Length: 99999\r\n\r\n",
        413,
        "body-too-large",
    ),
    "unknown-lease": (
        b"GET /leases/01M8NWAAWR7VZ1W090NQPYFS4R HTTP/1.1\r\n" + HOST + b"\r\n",
        404,
        "not-found",
    ),
    "odd-lease": (b"GET /leases/%2e%2e HTTP/1.1\r\n" + HOST + b"\r\n", 404, "not-found"),
    "unknown-join": (
        b"GET /leases/01M8NWAAWR7VZ1W090NQPYFS4R.00/devtools HTTP/1.1\r\n" + HOST + UPGRADE + b"\r\n",
        404,
        "not-found",
    ),
    "leases-json": (b"POST /leases HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\n{", 400, "bad-request"),
    "leases-list": (b"POST /leases HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n[]", 400, "bad-request"),
    "leases-key": (
        b"POST /leases HTTP/1.1\r\n" + HOST + b'Content-Length: 9\r\n\r\n{"max":{}',
        400,
        "bad-request",
    ),
}


@pytest.mark.parametrize("pieces", ["whole", "single"])
@pytest.mark.parametrize("name", BAD)
async def test_bad_requests_are_refused_at_once(farm, fakes, name, pieces):
    data, status, reason = BAD[name]
    pod = fakes.Pod("a")
    await farm.add(pod)
    caller = await farm.caller()
    size = len(data) if pieces == "whole" else 1
    if len(data) > 2000 and size == 1:
        size = 512
    async with asyncio.timeout(5):
        for at in range(0, len(data), size):
            caller.send(data[at : at + size])
            await asyncio.sleep(0)  # let the door read it by itself
        assert await caller.refusal() == (status, reason)
    assert pod.shakes == []
    assert farm.count("farmproxy_refusals_total", reason=reason) == 1
    await farm.until(lambda: len(farm.proxy.lingering_close) == 0)


QUERIES = {
    "hold=-1": (400, "bad-request"),
    "hold=abc": (400, "bad-request"),
    "hold=1e3": (400, "bad-request"),
    "hold=nan": (400, "bad-request"),
    "hold=3601": (400, "bad-request"),
    "hold=": (400, "bad-request"),
    "hold=1&hold=1": (400, "bad-request"),
    "max=0": (400, "bad-request"),
    "max=3601": (400, "bad-request"),
    "max=-5": (400, "bad-request"),
    "label=" + "x" * 65: (400, "bad-request"),
    "label=%0a": (400, "bad-request"),
    "profile=p": (400, "bad-request"),
    "pool=nowhere": (404, "not-found"),
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("path", ["/devtools/browser", "/render", "/leases"])
async def test_wrong_wishes_are_refused_before_any_hold(farm, path, query):
    if path == "/devtools/browser":
        caller = await farm.upgrade(f"{path}?{query}")
    else:
        caller = await farm.caller(farm.request("POST", f"{path}?{query}", b"{}"))
    assert await caller.refusal() == QUERIES[query]
    assert farm.counts().demand == 0


UNKNOWN = {
    "holds=0": ("'holds'", "did you mean hold?"),
    "max_s=5": ("'max_s'", "did you mean max?"),
    "stealth=true": ("'stealth'", "there are: "),
    "launch=%7B%22args%22%3A%5B%22--user-agent%3Dx%22%5D%7D": ("'launch'", "there are: "),
    "hold=0&x": ("'x'", "there are: args, hold, label"),
    "--proxy-server=http://127.0.0.1:9": ("'--proxy-server'", "did you mean proxy_server?"),
    "proxy=127.0.0.1:9": ("'proxy'", "did you mean proxy_server?"),
    "--window-size=800,600": ("'--window-size'", "did you mean window?"),
}


@pytest.mark.parametrize("query", UNKNOWN)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("UPGRADE", "/"),
        ("UPGRADE", "/devtools/browser/farm"),
        ("POST", "/render"),
        ("POST", "/leases"),
        ("GET", "/leases"),
        ("GET", "/json/version"),
        ("GET", "/json/list"),
    ],
)
async def test_a_key_that_means_nothing_is_named_before_any_hold(farm, method, path, query):
    if method == "UPGRADE":
        caller = await farm.upgrade(f"{path}?{query}")
    else:
        caller = await farm.caller(
            farm.request(method, f"{path}?{query}", b"{}" if method == "POST" else None)
        )
    status, _, body = await caller.answer()
    detail = json.loads(body)["detail"]
    assert (status, [word in detail for word in UNKNOWN[query]]) == (400, [True, True]), detail
    assert farm.counts().demand == 0


LAUNCH = {
    "proxy_server=http://me:secret@proxy:3128": "leave them out and answer the proxy's 407",
    "proxy_server=proxy": "HOST:PORT",
    "user_agent=%C3%A9": "ASCII",
    "user_agent=a%0D%0Ab": "printable",
    "lang=de_DE": "de-DE",
    "timezone=Nowhere/Land": "Europe/Berlin",
    "timezone=../../etc/passwd": "Europe/Berlin",
    "window=100x100": "500x200",
    "args=--user-agent%3Dx": "say user_agent",
    "args=--no-sandbox": "the pod decides",
    "args=--load-extension%3D/tmp": "no path of yours",
    "args=--hide-scrollbars&args=--hide-scrollbars": "twice",
    "args=--hide-scrollbars%3D1": "allowed: --hide-scrollbars",
    "args=--renderer-cmd-prefix%3Dsh": "--hide-scrollbars",
}


@pytest.mark.parametrize("query", LAUNCH)
async def test_a_launch_option_that_cannot_be_had_is_refused_before_any_hold(farm, query):
    for head in (
        farm.request("GET", f"/json/version?{query}"),
        farm.request("POST", f"/leases?{query}", b""),
    ):
        caller = await farm.caller(head)
        status, _, body = await caller.answer()
        detail = json.loads(body)["detail"]
        assert (status, LAUNCH[query] in detail) == (400, True), detail
        assert "secret" not in detail
    assert farm.counts().demand == 0


async def test_a_launch_option_where_no_chrome_is_started_for_it_is_refused(farm, fakes):
    for method, target, body in (
        ("GET", "/leases?lang=de", None),
        ("POST", "/leases/01M8NWAAWR7VZ1W090NQPYFS4R/renew?lang=de", b"{}"),
        ("POST", "/render?proxy_server=proxy:3128", b"{}"),
        ("POST", "/render?user_agent=x", b"{}"),
        ("POST", "/render?window=800x600", b"{}"),
        ("POST", "/render?args=--hide-scrollbars", b"{}"),
    ):
        caller = await farm.caller(farm.request(method, target, body))
        assert await caller.refusal() == (400, "bad-request"), target


async def test_launch_options_reach_the_agent_in_the_handshake_alone(farm, fakes):
    asked = {
        "proxy_server": "http://[::1]:3128",
        "user_agent": 'Mozilla/5.0 ("quoted"; a\\b)',
        "lang": "de-DE,en",
        "timezone": "Europe/Berlin",
        "window": "1280x800",
        "args": ["--hide-scrollbars", "--font-render-hinting=none"],
    }

    async def leased(pod, shake):
        shake.accept(pod)
        await shake.reader.read()

    pod = fakes.Pod("a", fakes.serve_echo, fakes.serve_render, leased)
    await farm.add(pod)
    query = urlencode(asked, doseq=True)
    caller = await farm.upgrade(f"/devtools/browser/farm?{query}&label=x")
    assert (await caller.head())[0] == 101
    assert json.loads(pod.shakes[0].fields["farm-launch"]) == asked
    assert pod.shakes[0].request.startswith(b"GET /devtools/browser/farm HTTP/1.1\r\n")
    caller.close()
    await farm.idle()
    caller = await farm.caller(farm.request("POST", "/render?lang=de&timezone=UTC", b"{}"))
    assert (await caller.answer())[0] == 200
    assert json.loads(pod.shakes[1].fields["farm-launch"]) == {"lang": "de", "timezone": "UTC"}
    await farm.idle()
    api = await farm.caller(farm.request("POST", "/leases", json.dumps(asked).encode()))
    assert (await api.answer())[0] == 201
    assert json.loads(pod.shakes[2].fields["farm-launch"]) == asked
    (told,) = farm.proxy.book.live.values()
    renewed = await farm.caller(farm.request("POST", f"/leases/{told.id}/renew", b'{"lang": "de"}'))
    assert await renewed.refusal() == (400, "bad-request")


async def test_discovery_hands_launch_options_on_to_the_socket(farm):
    caller = await farm.get("/json/version?lang=de-DE&args=--hide-scrollbars")
    told = json.loads((await caller.answer())[2])
    assert told["webSocketDebuggerUrl"].endswith("/farm?lang=de-DE&args=--hide-scrollbars")


async def test_a_query_of_empty_parts_says_nothing(farm):
    for query in ("?", "?&", "?&&label=x&"):
        caller = await farm.get(f"/json/version{query}")
        assert (await caller.answer())[0] == 200


async def test_the_ceiling_is_named(farm):
    caller = await farm.upgrade("/?max=99999")
    told = json.loads((await caller.answer())[2])
    assert "3600" in told["detail"]


async def test_the_same_wishes_count_in_headers_and_in_json(farm):
    for header in ("Farm_Hold", "hold"):
        caller = await farm.upgrade("/", **{header: "0"})
        assert await caller.refusal() == (503, "no-free-pod")
    caller = await farm.upgrade("/", Farm_Hold="0", hold="0")
    assert await caller.refusal() == (400, "bad-request")
    caller = await farm.caller(farm.request("POST", "/leases", b'{"hold": 0}'))
    assert await caller.refusal() == (503, "no-free-pod")
    caller = await farm.caller(farm.request("POST", "/leases", b'{"hold": -1}'))
    assert await caller.refusal() == (400, "bad-request")
    caller = await farm.caller(farm.request("POST", "/leases", b'{"pools": 1}'))
    status, _, body = await caller.answer()
    assert (status, "'pools'; did you mean pool?" in json.loads(body)["detail"]) == (400, True)


async def test_a_byte_a_second_ends_by_the_head_timeout(new_farm):
    farm = new_farm(head_timeout_s=0.6)
    caller = await farm.caller(b"GET / HT")

    async def drip():
        while True:
            caller.send(b"T")
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(drip())
        status, _fields, body = await caller.answer()
        task.cancel()
    # Drips after "HTT" make the request line wrong only when it is complete: time runs out first.
    assert (status, json.loads(body)["reason"]) == (408, "head-timeout")


async def test_silence_ends_by_the_head_timeout(new_farm):
    farm = new_farm(head_timeout_s=0.3)
    caller = await farm.caller()
    assert await caller.refusal() == (408, "head-timeout")
    caller = await farm.caller(farm.request("POST", "/leases", b"{}")[:-1])
    assert await caller.refusal() == (408, "head-timeout")


async def test_a_kept_connection_is_closed_without_a_word(new_farm):
    farm = new_farm(head_timeout_s=0.3)
    caller = await farm.get("/json")
    assert (await caller.answer())[2] == b"[]"
    assert await caller.reader.read() == b""


async def test_absolute_form_means_its_own_authority(farm):
    caller = await farm.caller(b"GET http://localhost:7/json/version HTTP/1.1\r\nHost: example.org\r\n\r\n")
    told = json.loads((await caller.answer())[2])
    assert told["webSocketDebuggerUrl"] == "ws://localhost:7/devtools/browser/farm"


async def test_repeated_list_headers_are_legal_and_reach_the_pod(farm, fakes):
    # extension headers pass untouched
    pod = fakes.Pod("a")
    await farm.add(pod)
    extensions = b"Sec-WebSocket-Extensions: permessage-deflate\r\nsec-websocket-extensions: permessage-deflate; x=1\r\n"
    data = b"Connection: keep-alive\r\nconnection: x, UPGRADE\r\nUpgrade: h2c, WebSocket\r\n"
    caller = await farm.caller(SOCKET + HOST + data + extensions + b"\r\n")
    assert (await caller.head())[0] == 101
    assert extensions in pod.shakes[0].request
    assert data in pod.shakes[0].request


async def test_requests_glued_together_are_answered_in_order(farm):
    caller = await farm.caller(
        farm.request("GET", "/json")
        + b"\r\n"
        + farm.request("GET", "/json/version/")
        + farm.request("GET", "/nowhere")
    )
    assert (await caller.answer())[2] == b"[]"
    assert b"webSocketDebuggerUrl" in (await caller.answer())[2]
    assert await caller.refusal() == (404, "not-found")


async def test_head_and_http_1_0_of_discovery(farm):
    caller = await farm.caller(b"HEAD /json/version HTTP/1.1\r\n" + HOST + b"\r\n")
    status, fields = await caller.head()
    assert (status, int(fields["content-length"]) > 10) == (200, True)
    caller.send(b"GET /json/version HTTP/1.0\r\n\r\n")
    status, fields, body = await caller.answer()
    assert fields["connection"] == "close"
    assert json.loads(body)["webSocketDebuggerUrl"].startswith(f"ws://{farm.address}/")
    assert await caller.reader.read() == b""


async def test_a_flood_of_connections_is_bounded_by_descriptors(new_farm, fakes):
    farm = new_farm(descriptors=64 + 12, head_timeout_s=30)
    pod = fakes.Pod("a")
    await farm.add(pod)
    good = await farm.upgrade()
    assert (await good.head())[0] == 101
    flood = [await farm.caller() for _ in range(30)]
    refused = 0
    for caller in flood:
        try:
            async with asyncio.timeout(0.05):
                assert (await caller.answer())[0] == 503
                refused += 1
        except TimeoutError:
            continue
    assert refused >= 15
    assert farm.count("farmproxy_refusals_total", reason="descriptors") == refused
    good.send(b"still here")
    assert await good.reader.readexactly(10) == b"still here"
    for caller in flood:
        caller.close()
    await farm.until(lambda: farm.proxy.room() >= 4)
    late = await farm.upgrade("/?hold=0")
    assert await late.refusal() == (503, "no-free-pod")


async def test_a_caller_is_not_taken_without_a_descriptor_for_its_pod(new_farm):
    farm = new_farm(door=HostPort("127.0.0.2", 0), descriptors=64 + 4)
    first = await farm.upgrade()
    await farm.until(lambda: farm.counts().held == 1)
    second = await farm.upgrade()
    assert await second.refusal() == (503, "descriptors")
    first.close()


async def test_mutated_requests_never_break_the_door(new_farm, fakes):
    farm = new_farm(head_timeout_s=0.2, hold_default_s=0.1)
    chance = random.Random(7)
    good = [data for data, _, _ in BAD.values() if len(data) < 2000] + [farm.request("GET", "/json")]
    for _ in range(150):
        data = bytearray(chance.choice(good))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        caller = await farm.caller(bytes(data))
        if chance.random() < 0.2:
            caller.reset()
            continue
        first = await asyncio.wait_for(caller.reader.read(12), 5)
        assert first in {b"", b"HTTP/1.1 200"} or first[:10] in {b"HTTP/1.1 4", b"HTTP/1.1 5"}
        caller.close()
    await farm.idle()
    caller = await farm.get("/json")
    assert (await caller.answer())[0] == 200
