"""What runs in a lease: upgrades spliced to Chrome, /json pages through the door, answers framed, one request."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from farmagent.lease.json_pages import rewritten
from farmagent.lease.sessions import chrome_path

KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
UPGRADE = b"Host: farm.example:3000\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" + KEY


def frame(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0xFE]) + len(data).to_bytes(2)
    return b"\x81" + size + b"\0\0\0\0" + data


async def read_frame(reader):
    async with asyncio.timeout(5):
        _, size = await reader.readexactly(2)
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await reader.readexactly(8))
        return await reader.readexactly(size)


async def upgraded(pod, path=b"/devtools/browser/farm", extra=b"", more=b""):
    reader, writer = await pod.leased("L1")
    writer.write(b"GET " + path + b" HTTP/1.1\r\n" + UPGRADE + extra + b"\r\n" + more)
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    return head, reader, writer


async def test_an_upgrade_is_chromes_own_answer_with_the_leases_headers(pod):
    head, _, _ = await upgraded(pod)
    assert head.startswith(b"HTTP/1.1 101")
    for line in (
        b"Farm-Lease: L1",
        b"Farm-Pod: farm/browsers-1/uid-1",
        b"Farm-Waited-Ms: 12",
        b"Farm-Dials: 2",
    ):
        assert head.count(b"\r\n" + line + b"\r\n") == 1


async def test_chrome_sees_its_own_host_and_no_origin(pod):
    head, _, _ = await upgraded(pod, extra=b"Origin: http://farm.example:3000\r\nFarm-Key: k\r\nX-Own: 1\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    seen = pod.chrome.heads[-1].headers
    assert seen["Host"] == f"127.0.0.1:{pod.chrome.port}"
    assert "Origin" not in seen
    assert "Farm-Key" not in seen
    assert seen["X-Own"] == "1"


async def test_no_extension_is_agreed_on_however_it_is_offered(pod):
    """Chrome inflates on the thread that answers its heartbeat: 20 MiB take it 20 s. The fake would agree."""
    offer = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
    other = b"SEC-WEBSOCKET-EXTENSIONS: x-webkit-deflate-frame, permessage-deflate\r\n"
    head, _, _ = await upgraded(pod, extra=offer + other)
    assert "Sec-WebSocket-Extensions" not in pod.chrome.heads[-1].headers
    assert head.startswith(b"HTTP/1.1 101")
    assert b"extensions" not in head.lower()


async def test_bytes_glued_to_the_head_go_on_first(pod):
    _, reader, _ = await upgraded(pod, more=frame({"id": 1, "method": "Test.echo"}))
    assert json.loads(await read_frame(reader))["id"] == 1


async def test_a_conversation_one_byte_at_a_time(pod):
    reader, writer = await pod.leased("L1")
    data = b"GET / HTTP/1.1\r\n" + UPGRADE + b"\r\n" + frame({"id": 5, "method": "Test.echo"})
    for byte in data:
        writer.write(bytes([byte]))
        await writer.drain()
    async with asyncio.timeout(5):
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    assert json.loads(await read_frame(reader))["id"] == 5


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "/devtools/browser/abc"),
        ("/devtools/browser", "/devtools/browser/abc"),
        ("/devtools/browser/farm", "/devtools/browser/abc"),
        ("/devtools/page/P", "/devtools/page/P"),
        ("/devtools/browserless", "/devtools/browserless"),
    ],
)
def test_browser_paths_lead_to_the_browsers_own(path, expected):
    assert chrome_path(path, "ws://127.0.0.1:1/devtools/browser/abc") == expected


async def test_a_target_that_chrome_does_not_know_is_404_and_framed(pod):
    head, reader, _ = await upgraded(pod, path=b"/nothing")
    assert head.startswith(b"HTTP/1.1 404")
    assert b"Farm-Lease: L1" in head
    assert b"Connection: close" in head
    async with asyncio.timeout(5):
        assert json.loads(await reader.read())["reason"] == "not-found"


async def test_browser_close_by_the_caller_ends_the_lease_as_done(pod):
    _, reader, writer = await upgraded(pod)
    writer.write(frame({"id": 1, "method": "Browser.close"}))
    assert json.loads(await read_frame(reader)) == {"id": 1, "result": {}}
    async with asyncio.timeout(5):
        await reader.read()
    _, _, body = await pod.get("/readyz?wait=5&lease=L1")
    assert json.loads(body) == {"state": "free", "lease": "L1", "end": "done"}


async def test_chromes_death_closes_a_silent_session(pod):
    _, reader, _ = await upgraded(pod)
    pod.chrome.end(-9)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    _, _, body = await pod.get("/readyz?wait=5&lease=L1")
    assert json.loads(body)["end"] == "browser-died"


async def test_a_socket_that_chrome_closes_alone_ends_the_lease_as_done(pod):
    _, _, writer = await upgraded(pod, path=b"/devtools/page/P")
    writer.write(frame({"id": 1, "method": "Test.closeSocket"}))
    _, _, body = await pod.get("/readyz?wait=5&lease=L1")
    assert json.loads(body)["end"] == "done"


async def test_a_caller_that_stops_reading_stops_chrome_and_is_given_up(pod_with):
    async with pod_with(stall_s=0.2) as pod:
        await pod.until(lambda pod: pod.busy is None)
        _, _reader, writer = await upgraded(pod)
        writer.transport.pause_reading()
        params = {"count": 400, "size": 100_000}
        writer.write(frame({"id": 1, "method": "Test.burst", "params": params}))
        _, _, body = await pod.get("/readyz?wait=10&lease=L1")
        assert json.loads(body)["end"] == "stall"


async def test_bulk_passes_whole_with_backpressure(pod):
    _, reader, writer = await upgraded(pod)
    writer.write(frame({"id": 1, "method": "Test.burst", "params": {"count": 100, "size": 100_000}}))
    for _ in range(100):
        assert len(await read_frame(reader)) == 100_000


async def http(pod, head, body=b"", *handshake):
    reader, writer = await pod.leased("L1", *handshake)
    writer.write(head + body)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


async def test_json_pages_lead_through_the_door(pod):
    head, body = await http(pod, b"GET /json/list HTTP/1.1\r\nHost: farm.example\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    (page,) = json.loads(body)
    assert page["webSocketDebuggerUrl"] == "ws://door:9222/leases/L1.KEY/devtools/page/P"
    assert (
        page["devtoolsFrontendUrl"] == "/devtools/inspector.html?ws=door:9222/leases/L1.KEY/devtools/page/P"
    )


@pytest.mark.parametrize("target", [b"GET /json/list", b"GET /nowhere"])
async def test_an_answer_is_readable_by_the_page_that_the_door_allows(pod, target):
    head, _ = await http(
        pod, target + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"", "Farm-Allow-Origin: https://app.example"
    )
    assert head.count(b"\r\nAccess-Control-Allow-Origin: https://app.example\r\n") == 1
    assert b"\r\nVary: Origin\r\n" in head
    (exposed,) = [line for line in head.split(b"\r\n") if line.startswith(b"Access-Control-Expose-Headers:")]
    assert b"Farm-Pod" in exposed
    assert b"Farm-Page-Status" in exposed


async def test_without_such_a_page_no_answer_speaks_of_origins(pod):
    head, _ = await http(pod, b"GET /json/list HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"Access-Control" not in head


async def test_an_upgrade_to_one_of_several_protocols_is_a_websocket(pod):
    reader, writer = await pod.leased("L1")
    writer.write(b"GET / HTTP/1.1\r\n" + UPGRADE.replace(b"WebSocket", b"h2c, WebSocket", 1) + b"\r\n")
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    assert not head.startswith(b"HTTP/1.1 404")
    assert pod.chrome.heads


def test_a_door_with_tls_is_wss_everywhere():
    chrome = "127.0.0.1:5"
    page = {
        "webSocketDebuggerUrl": f"ws://{chrome}/devtools/page/P",
        "devtoolsFrontendUrl": f"x?ws={chrome}/d",
    }
    assert rewritten([page], chrome, "wss://door/leases/L.K") == [
        {
            "webSocketDebuggerUrl": "wss://door/leases/L.K/devtools/page/P",
            "devtoolsFrontendUrl": "x?wss=door/leases/L.K/d",
        }
    ]


async def test_every_answer_has_its_length_and_says_close(pod):
    head, body = await http(pod, b"GET /json/version HTTP/1.1\r\nHost: farm.example\r\n\r\n")
    assert b"\r\nConnection: close" in head
    assert f"\r\nContent-Length: {len(body)}".encode() in head
    assert head.count(b"\r\nFarm-Lease: L1") == 1


async def test_one_request_a_connection(pod):
    two = b"GET /json/version HTTP/1.1\r\nHost: x\r\n\r\n" * 2
    _head, body = await http(pod, two)
    assert body.count(b"Fake/1") == 1


async def test_unknown_paths_are_404_and_garbage_400(pod):
    head, _body = await http(pod, b"GET /lease HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404")
    await pod.get("/readyz?wait=5")
    head, _body = await http(pod, b"NONSENSE\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")


@dataclass
class Rendered:
    status: int = 200
    headers: list = field(
        default_factory=lambda: [("Content-Type", "text/html"), ("Farm-Page-Status", "200")]
    )
    body: bytes = b"<p>"


class TestRender:
    async def test_gets_chrome_and_the_body_and_is_framed(self, pod_with):
        seen = []

        async def renderer(ws_url, body):
            seen.append((ws_url, body))
            return Rendered()

        async with pod_with(renderer) as pod:
            await pod.until(lambda pod: pod.busy is None)
            ws_url = pod.chrome.ws_url
            head, body = await http(
                pod, b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", b"{}"
            )
        assert seen == [(ws_url, b"{}")]
        assert body == b"<p>"
        assert b"\r\nContent-Type: text/html" in head
        assert b"\r\nContent-Length: 3" in head
        assert b"\r\nFarm-Dials: 2" in head

    @pytest.mark.parametrize(
        "frame", [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
    )
    async def test_an_offer_of_http2_is_ignored(self, pod_with, frame):
        async def renderer(ws_url, body):
            return Rendered(body=body)

        async with pod_with(renderer) as pod:
            await pod.until(lambda pod: pod.busy is None)
            offer = (
                b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
            )
            head, body = await http(pod, b"POST /render HTTP/1.1\r\nHost: x\r\n" + offer + frame)
            assert head.startswith(b"HTTP/1.1 200")
            assert body == b"{}"

    async def test_a_chunked_body_is_a_body_and_one_too_large_is_413(self, pod_with):
        async def renderer(ws_url, body):
            return Rendered(body=body)

        async with pod_with(renderer) as pod:
            await pod.until(lambda pod: pod.busy is None)
            chunked = b"POST /render HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            _, body = await http(pod, chunked, b"2\r\n{}\r\n0\r\n\r\n")
            assert body == b"{}"
            await pod.get("/readyz?wait=5")
            size = 256 * 1024 + 1
            head, _ = await http(
                pod,
                f"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode(),
                b"x" * size,
            )
            assert head.startswith(b"HTTP/1.1 413")

    async def test_a_caller_that_leaves_cancels_it(self, pod_with):
        cancelled, began = asyncio.Event(), asyncio.Event()

        async def renderer(ws_url, body):
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with pod_with(renderer) as pod:
            await pod.until(lambda pod: pod.busy is None)
            _, writer = await pod.leased(
                "L1", more=b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
            )
            async with asyncio.timeout(5):
                await began.wait()
                writer.close()
                await cancelled.wait()
            assert (await pod.get("/readyz?wait=5"))[0] == 200

    async def test_a_chrome_that_dies_under_it_sends_no_byte(self, pod_with):
        began = asyncio.Event()

        async def renderer(ws_url, body):
            began.set()
            await asyncio.Event().wait()

        async with pod_with(renderer) as pod:
            await pod.until(lambda pod: pod.busy is None)
            reader, _ = await pod.leased(
                "L1", more=b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
            )
            async with asyncio.timeout(5):
                await began.wait()
                pod.chrome.end(-9)
                assert await reader.read() == b""
            _, _, body = await pod.get("/readyz?wait=5&lease=L1")
            assert json.loads(body)["end"] == "browser-died"

    async def test_a_defect_in_it_costs_the_connection_not_the_pod(self, pod_with):
        async def renderer(ws_url, body):
            raise ZeroDivisionError

        async with pod_with(renderer) as pod:
            await pod.until(lambda pod: pod.busy is None)
            head, body = await http(pod, b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert (head, body) == (b"", b"")
            assert (await pod.get("/readyz?wait=5"))[0] == 200
