"""What runs on one connection of a lease: one request of the caller, answered or spliced, then closed.

The rule: nothing is read from the caller before its lease stands; an HTTP answer is whole or visibly cut off;
an upgrade is raw bytes between the caller and Chrome's own socket, and no extension is agreed on.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from farmwire import bounds, paths
from farmwire.reasons import End

from farmagent import cancellation
from farmagent.chrome import chrome_http
from farmagent.errors import ChromeLostError
from farmagent.http.connections import Connection, PeerGone, connect
from farmagent.http.heads import BadRequest, HttpServerSide, Request, as_json
from farmagent.lease import json_pages
from farmagent.lease.browsers import Browser
from farmagent.lease.lease_requests import LeaseRequest

CLOSE = ("Connection", "close")
CHROME_CONNECT_S = 5.0
CHROME_HEAD_LIMIT_BYTES = 64 * 1024
VERDICT_S = 1.0  # how long a Chrome that no longer answers may take to be told dead by its watcher
# Headers that are the proxy's or Chrome's business, not the caller's. Extensions: Chrome would take the offer of
# compression and then inflate a large upload for seconds on the thread that answers everything else; what it does
# not see it does not accept, so no side compresses.
DROPPED = frozenset({b"host", b"origin", b"authorization", b"sec-websocket-extensions"})


class RenderAnswer(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Sequence[tuple[str, str]]: ...
    @property
    def body(self) -> bytes: ...


class Renderer(Protocol):
    """Drives a page of this Chrome for one POST /render."""

    async def __call__(self, chrome_ws_url: str, body: bytes) -> RenderAnswer: ...


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a session runs: the lease's own event, the pod's Chrome, and what answers carry."""

    lease_request: LeaseRequest
    chrome: Browser
    pod: str
    over: asyncio.Event
    used: Callable[[], None]
    renderer: Renderer
    body_limit_s: float


async def serve(connection: Connection, place: SessionPlace) -> End:
    """Returns how this connection ended; it is closed then. A lease's ``over`` ends it at any point."""
    try:
        end = await cancellation.unless(_serve(connection, place), connection.ended, place.over)
    except cancellation.OverError:
        end = _peer_end(connection)
    except PeerGone:
        end = _peer_end(connection)
    except ChromeLostError:
        end = await _chrome_end(connection, place)
    connection.close()  # an answer that is not whole shows it by its length
    return end


def _peer_end(connection: Connection) -> End:
    if connection.stalled:
        return End.STALL
    return End.CALLER_LOST if isinstance(connection.error, TimeoutError) else End.DONE


async def _chrome_end(connection: Connection, place: SessionPlace) -> End:
    """Close at once. A Chrome that still answers has only closed this socket, as after a caller's close frame;
    for one that does not, its watcher has the word.
    """
    connection.close()
    with suppress(cancellation.OverError, ChromeLostError):
        if place.chrome.heartbeat is not None:
            await cancellation.unless(place.chrome.heartbeat.ask(), place.over)
            return End.DONE
    await cancellation.within(place.over.wait(), VERDICT_S)
    return End.BROWSER_DIED


async def _serve(connection: Connection, place: SessionPlace) -> End:
    first = await connection.receive()
    if not first:
        return _peer_end(connection)
    place.used()
    connection.unread(first)
    http = HttpServerSide(connection, head_limit=bounds.REWRITTEN_HEAD_BYTES)
    try:
        request = await http.next_request(idle_s=None, head_s=place.body_limit_s)
        if request is None:
            return _peer_end(connection)
        return await _route(http, request, place)
    except BadRequest as refusal:
        if http.can_answer():
            body = {"reason": "bad-request", "detail": refusal.detail}
            await _answer(http, place, refusal.status, as_json(body))
        return End.DONE


async def _route(http: HttpServerSide, request: Request, place: SessionPlace) -> End:
    if request.method == "GET" and request.asks_upgrade_to("websocket"):
        return await _splice(http, request, place)
    process = place.chrome.process
    if process is None:
        raise ChromeLostError("Chrome is gone")
    if json_pages.is_json_page(request.path) and request.method in json_pages.METHODS:
        answer = await json_pages.page(process.port, request, place.lease_request.public_base)
        headers = [("Content-Type", answer.content_type), ("Cache-Control", "no-store")]
        await _answer(http, place, answer.status, answer.body, headers)
    elif request.path == paths.RENDER and request.method == "POST":
        body = await http.body(limit_bytes=bounds.RENDER_BODY_BYTES, limit_s=place.body_limit_s)
        rendered = await place.renderer(process.ws_url, body)
        await _answer(http, place, rendered.status, rendered.body, rendered.headers)
    else:
        detail = f"nothing at {request.method} {request.path} inside a lease"
        await _answer(http, place, 404, as_json({"reason": "not-found", "detail": detail}))
    return End.DONE


async def _answer(
    http: HttpServerSide,
    place: SessionPlace,
    status: int,
    body: bytes,
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    await http.answer(status, body, [*headers, *place.lease_request.answer_headers(place.pod), CLOSE])
    await http.connection.finish()


# upgrades


def chrome_path(path: str, ws_url: str) -> str:
    """The browser's own socket for / and every /devtools/browser...; a page's path as it is."""
    own = "/" + ws_url.split("/", 3)[3]
    if path in ("", "/") or path == paths.BROWSER_PREFIX or path.startswith(paths.BROWSER_PREFIX + "/"):
        return own
    return path


def upgrade_head(request: Request, path: str, host: str) -> bytes:
    """The caller's head for Chrome: Host is Chrome's own, Origin and extensions are gone, all else is as it came."""
    lines = [f"GET {path} HTTP/1.1".encode(), b"Host: " + host.encode()]
    for name, value in request.headers:
        if name.lower() not in DROPPED and not name.lower().startswith(b"farm-"):
            lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])


async def _splice(http: HttpServerSide, request: Request, place: SessionPlace) -> End:
    process = place.chrome.process
    if process is None:
        raise ChromeLostError("Chrome is gone")
    caller = http.connection
    caller.unread(http.glued())
    try:
        chrome = await connect(chrome_http.HOST, process.port, timeout_s=CHROME_CONNECT_S)
    except OSError as error:
        raise ChromeLostError(f"Chrome refuses connections: {error}") from error
    try:
        path = chrome_path(request.path, process.ws_url)
        chrome.write(upgrade_head(request, path, f"{chrome_http.HOST}:{process.port}"))
        head, rest = await _chrome_head(chrome)
        status_line, _, fields = head.partition(b"\r\n")
        if b" 101 " not in status_line[:14]:
            return await _refused(http, place, status_line)
        chrome.unread(rest)
        extra = "".join(
            f"{name}: {value}\r\n" for name, value in place.lease_request.answer_headers(place.pod)
        )
        await caller.send(status_line + b"\r\n" + extra.encode("latin-1") + fields)
        caller.splice(chrome)
        await chrome.ended.wait()
        raise ChromeLostError("Chrome closed this socket")
    finally:
        chrome.close()  # not abort: a reset could take back the caller's last command


async def _chrome_head(chrome: Connection) -> tuple[bytes, bytes]:
    """Chrome's answer to the upgrade, up to and with its empty line, and what came after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await chrome.receive()
        if not more or len(data) > CHROME_HEAD_LIMIT_BYTES:
            raise ChromeLostError("Chrome closed instead of answering an upgrade")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


async def _refused(http: HttpServerSide, place: SessionPlace, status_line: bytes) -> End:
    """Chrome answers 404 for a target that is gone and 500 for one it never had."""
    words = status_line.decode("latin-1").split(" ", 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdecimal() and len(words[1]) == 3 else 502
    detail = f"Chrome refused the upgrade: {' '.join(words[1:])}"
    await _answer(http, place, max(status, 400), as_json({"reason": "not-found", "detail": detail}))
    return End.DONE
