"""What the door accepts, the agent's own parser accepts: the handshake that the proxy writes, and the caller's rewritten
head after it. And should an agent say 400 all the same, no pod pays for it.
"""

import asyncio
import json

import pytest
from farmagent.http.heads import BadRequest, HttpServerSide
from farmagent.lease import lease_requests
from farmagent.server import foreign
from farmproxy.config.tokens import parse_key
from farmproxy.upstream.handshakes import join_head, lease_head
from farmwire import bounds
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

fuzz = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # one farm for all examples is what is meant
ID = "01M8NWAAWR7VZ1W090NQPYFS4R"


class Scripted:
    """The agent's side of a connection that gives these bytes and then ends."""

    def __init__(self, data):
        self._pieces = [data]

    async def receive(self):
        return self._pieces.pop() if self._pieces else b""


async def as_agent(data, head_limit=bounds.HEAD_BYTES):
    return await HttpServerSide(Scripted(data), head_limit=head_limit).next_request(idle_s=None, head_s=5)


async def offer_of(handshake):
    """What the agent makes of a handshake; raises BadRequest as the agent does."""
    request = await as_agent(handshake)
    assert foreign(request) == ""
    assert request.asks_upgrade_to("farm-lease")
    return lease_requests.read(request)


# The alphabet that the door lets through, and what real and odd clients write.
NAMES = st.sampled_from(
    [
        "Upgrade",
        "Connection",
        "Expect",
        "Cookie",
        "X-A",
        "Content-Length",
        "Transfer-Encoding",
        "Trailer",
        "TE",
        "HTTP2-Settings",
        "Farm-Lease",
        "Sec-WebSocket-Extensions",
        "Farm-Join",
        "Farm-Public-Base",
        "Origin",
        "X-Forwarded-Prefix",
        "X-Forwarded-Host",
        "label",
        "Farm-Label",
        "!#$%&'*+-.^_`|~",
        "Accept",
        "Keep-Alive",
    ]
)
VALUES = st.sampled_from(
    b"/websocket/WebSocket/h2c/h2c, websocket/websocket,h2c/Upgrade/keep-alive, Upgrade/upgrade, HTTP2-Settings/close"
    b"/100-continue/0/2/00000000000000002/chunked/Chunked".split(b"/")
) | st.lists(st.sampled_from([b"\t", b" ", b"~", b"!", b",", b'"', b"\x80", b"\xff", b"a" * 900])).map(
    b"".join
)
HOSTS = st.sampled_from([b"127.0.0.1", b"[::1]:9222", b"localhost:99999"]) | st.integers(1, 3000).map(
    lambda length: (b"h" * length) + b".localhost"
)
UPGRADE = [("Upgrade", b"websocket"), ("Connection", b"Upgrade")]
LINES = st.lists(st.tuples(NAMES, VALUES), max_size=6)


def request_of(start, host, lines):
    pairs = [("Host", host), *lines]
    return start + b" HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % (n.encode(), v) for n, v in pairs) + b"\r\n"


@pytest.fixture
async def recorded(new_farm, fakes):
    """A farm whose pod writes down each handshake and each caller's head, answers 200 and is free again at once."""

    async def record(pod, shake):
        shake.accept(pod)
        heads.append((shake.head, await shake.reader.readuntil(b"\r\n\r\n")))
        shake.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    async def lease(pod, shake):
        shake.accept(pod)
        await shake.reader.read()

    heads = []
    farm = new_farm(handshake_timeout_s=10.0, head_timeout_s=30.0)
    farm.heads = heads
    pod = fakes.Pod("a", record)
    named = fakes.Pod("b", lease)
    named.joins = record
    await farm.add(named)
    api = await farm.caller(farm.request("POST", "/leases", b""))
    farm.lease_path = (
        json.loads((await api.answer())[2])["urls"]["http"].partition(str(farm.address))[2].encode()
    )
    await farm.add(pod)
    return farm


async def taken(farm, data):
    """The status of the answer; what a pod was handed was understood by the agent, as the very thing it was meant for."""
    farm.heads.clear()
    caller = await farm.caller(data)
    status = 100
    while status == 100:
        status, _ = await caller.head()
    if not farm.heads:
        assert 400 <= status < 500, data
    for handshake, head in farm.heads:
        offer = await offer_of(handshake)
        assert offer.is_join == (b"Farm-Join" in handshake)
        request = await as_agent(head, bounds.REWRITTEN_HEAD_BYTES)
        assert request.path == offer_path(data, offer)
        wants_socket = b"websocket" in data.lower() and data.startswith(b"GET")
        if request.path.startswith("/devtools/browser") and not offer.is_join:
            assert wants_socket
            assert request.asks_upgrade_to("websocket")
    caller.close()
    await farm.until(lambda: farm.counts().pods["free"] == 1)
    return status


def offer_path(data, offer):
    path = data.split(b" ")[1].partition(b"?")[0].decode()
    return "/" + path.split("/", 3)[3] if offer.is_join else path


@fuzz
@example("socket", b"h" * 1990 + b".localhost", [])
@example("socket", b"h" * 245 + b".localhost", [])
@example("socket", b"127.0.0.1", [("Upgrade", b"h2c, websocket")])
@example("render", b"127.0.0.1", [("Upgrade", b"h2c"), ("Connection", b"Upgrade, HTTP2-Settings")])
@example("join", b"127.0.0.1", [("Content-Length", b"2"), *UPGRADE])
@example("render", b"127.0.0.1", [("Cookie", b"a" * 900)] * 17)
@given(st.sampled_from(["socket", "render", "join"]), HOSTS, LINES)
async def test_what_the_door_accepts_the_agent_accepts(recorded, kind, host, lines):
    start = {
        "socket": b"GET /devtools/browser/farm",
        "render": b"POST /render",
        "join": b"GET " + recorded.lease_path + b"/devtools/page/1",
    }[kind]
    names = {name for name, _ in lines}
    extra = [pair for pair in UPGRADE if pair[0] not in names] if kind == "socket" else []
    assert await taken(recorded, request_of(start, host, [*lines, *extra])) in (200, 400, 403, 404, 413, 431)
    assert recorded.count("farmproxy_dials_total", result="rejected") == 0


@settings(max_examples=200, deadline=None)
@example(0, 10_000_001, 1, "k" * bounds.KEY_CHARS, True)
@example(0, 0, 10**5000, None, False)
@given(
    *[st.integers(0, 10**20)] * 3,
    st.none() | st.text(st.characters(max_codepoint=0x2FF), max_size=80),
    st.booleans(),
)
def test_any_wait_and_number_of_dials_fits_a_handshake(max_s, waited_ms, dials, key, join):
    if key is not None:
        try:
            key = parse_key(key)
        except ValueError:
            return
    write = join_head if join else lease_head
    base = "wss://" + "h" * bounds.HOST_CHARS + ":65535" + "/p" * 100 + f"/leases/{ID}.{'0' * 32}"
    origin = "https://" + "h" * (bounds.ORIGIN_CHARS - 8)
    handshake = write(
        "[fe80::1]:9222",
        ID,
        key=key,
        max_s=max_s,
        waited_ms=waited_ms,
        dials=dials,
        public_base=base,
        allow_origin=origin,
    )
    offer = asyncio.run(offer_of(handshake))
    assert (offer.lease, offer.is_join, offer.public_base) == (ID, join, base)
    told = dict(offer.answer_headers("farm/a/uid"))
    assert told["Access-Control-Allow-Origin"] == origin
    assert told["Vary"] == "Origin"
    assert int(offer.waited_ms) == min(waited_ms, bounds.WHOLE_NUMBER)


@pytest.mark.parametrize("number", [str(bounds.WHOLE_NUMBER + 1), "9" * 5000, "\u0661", "-1", "1.5", ""])
async def test_an_agent_refuses_other_numbers_with_a_400(number):
    head = f"GET /lease HTTP/1.1\r\nHost: 10.0.0.1\r\nFarm-Lease: {ID}\r\nFarm-Dials: {number}\r\n\r\n"
    with pytest.raises(BadRequest):
        lease_requests.read(await as_agent(head.encode()))


async def test_a_host_longer_than_any_name_is_refused_at_the_door(farm, fakes):
    pods = [fakes.Pod(name) for name in "abc"]
    await farm.add(*pods)
    for start in (b"GET /", b"POST /render", b"POST /leases"):
        lines = UPGRADE if start == b"GET /" else []
        caller = await farm.caller(request_of(start, b"h" * 1990 + b".localhost", lines))
        assert await caller.refusal() == (400, "bad-request")
    assert farm.counts().pods["free"] == 3
    assert [pod.shakes for pod in pods] == [[], [], []]


@pytest.mark.parametrize("status", [400, 431])
@pytest.mark.parametrize("kind", ["socket", "render", "named"])
async def test_an_agents_400_is_the_proxys_fault_and_sets_no_pod_aside(farm, fakes, kind, status):
    told = {"reason": "bad-request", "detail": "Farm-Public-Base must be a ws:// or wss:// URL"}
    refuse = fakes.answer(fakes.json_answer(status, told))
    pods = [fakes.Pod("a", refuse, fakes.serve_render), fakes.Pod("b", fakes.serve_render)]
    await farm.add(pods[0])
    if kind == "socket":
        caller = await farm.upgrade()
    else:
        path = "/render" if kind == "render" else "/leases"
        caller = await farm.caller(farm.request("POST", path, b"{}"))
    assert await caller.refusal() == (500, "proxy-fault")
    assert farm.counts().pods["free"] == 1
    assert farm.count("farmproxy_dials_total", result="rejected") == 1
    assert farm.count("farmproxy_refusals_total", reason="proxy-fault") == 1
    (line,) = farm.log.of("handshake-rejected")
    assert (line["level"], line["status"], line["pod"]) == ("error", status, "a")
    assert "Farm-Public-Base" in line["answer"]
    assert farm.log.of("set-aside") == []
    again = await farm.caller(farm.request("POST", "/render", b"{}"))
    assert (await again.answer())[0] == 200  # by the same pod


async def test_an_agents_400_to_a_join_is_the_proxys_fault_too(farm, fakes):
    pod = fakes.Pod("a", fakes.hang_leased)
    pod.joins = fakes.answer(fakes.json_answer(400, {"reason": "bad-request", "detail": "x"}))
    await farm.add(pod)
    api = await farm.caller(farm.request("POST", "/leases", b""))
    path = json.loads((await api.answer())[2])["urls"]["browser_ws"].partition(str(farm.address))[2]
    joined = await farm.upgrade(path)
    assert await joined.refusal() == (500, "proxy-fault")
    assert farm.counts().leases == 1
    assert len(farm.log.of("handshake-rejected")) == 1


async def test_a_strangers_400_is_a_fault_of_the_pods_address(new_farm, fakes):
    # The address belongs to another workload now: a server that wants TLS, for one.
    farm = new_farm(set_aside_s=30)
    html = b"<html>The plain HTTP request was sent to HTTPS port</html>"
    pod = fakes.Pod(
        "a", fakes.answer(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (len(html), html))
    )
    pod.free.clear()
    await farm.add(pod)
    await farm.upgrade()
    await farm.until(lambda: farm.counts().pods["set-aside"] == 1)
