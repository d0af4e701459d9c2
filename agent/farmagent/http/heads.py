"""HTTP/1.1 as the agent speaks it: strict requests in (h11), answers framed by length out.

The rule: a head is bounded in bytes and time, an answer always has its length (so a dead pod cannot look like a
finished answer), and a request that cannot be trusted is answered once and its connection closed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import h11
import msgspec
from farmwire import bounds

from farmagent.http.connections import Connection

HEAD_LIMIT_BYTES = bounds.HEAD_BYTES

Headers = Sequence[tuple[str, str]]


class BadRequest(Exception):
    """The peer's bytes are no request that can be served; ``status`` is the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]  # as they came, names in their own spelling

    @cached_property
    def path(self) -> str:
        """Raises BadRequest for an absolute target that is no URL."""
        if self.target.startswith("/"):
            return self.target.partition("?")[0]
        try:
            return urlsplit(self.target).path
        except ValueError as error:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "the target is no URL") from error

    @cached_property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    def header(self, name: str) -> str | None:
        """The header's value; repeated ones joined as a list (RFC 9110 5.3)."""
        wanted = name.lower().encode()
        values = [value.decode("latin-1") for key, value in self.headers if key.lower() == wanted]
        return ", ".join(values) if values else None

    def asks_upgrade_to(self, protocol: str) -> bool:
        """Whether the protocol is among those that are offered (RFC 9110, 7.8: both headers are lists)."""
        return self._lists("connection", "upgrade") and self._lists("upgrade", protocol)

    def _lists(self, name: str, word: str) -> bool:
        return word in (item.strip() for item in (self.header(name) or "").lower().split(","))


def as_json(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


class HttpServerSide:
    """Requests and answers on one connection, one after the other."""

    def __init__(self, connection: Connection, *, head_limit: int = HEAD_LIMIT_BYTES) -> None:
        self.connection = connection
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=head_limit)
        self._is_head = False

    async def next_request(self, *, idle_s: float | None, head_s: float) -> Request | None:
        """None when the peer closed between requests, or sent none within ``idle_s``. Raises BadRequest (408 when the head
        takes too long).
        """
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        try:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(idle_s):
                    first = await self.connection.receive()
                if not first:
                    return None
                self._h11.receive_data(first)
                event = await self._event(head_s)
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint, str(error)) from error
        except TimeoutError:
            return None  # a kept-alive connection that nobody used
        if not isinstance(event, h11.Request):
            return None
        return self._request(event)

    async def _event(self, limit_s: float) -> Any:
        try:
            async with asyncio.timeout(limit_s):
                while (event := self._h11.next_event()) is h11.NEED_DATA:
                    self._h11.receive_data(await self.connection.receive())
        except TimeoutError as error:
            raise BadRequest(HTTPStatus.REQUEST_TIMEOUT, f"no whole request within {limit_s:g} s") from error
        return event

    def _request(self, event: h11.Request) -> Request:
        request = Request(
            event.method.decode("ascii"), event.target.decode("latin-1"), tuple(event.headers.raw_items())
        )
        self._is_head = request.method == "HEAD"
        return request

    async def body(self, *, limit_bytes: int, limit_s: float) -> bytes:
        """The request's body. Raises BadRequest: 413 over the limit, 408 when it takes too long."""
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                event = await self._event(limit_s)
            except h11.RemoteProtocolError as error:
                raise BadRequest(error.error_status_hint, str(error)) from error
            if not isinstance(event, h11.Data):
                return b"".join(parts)
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > limit_bytes:
                raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is over {limit_bytes} bytes")

    def glued(self) -> bytes:
        """Bytes that came after the head of an upgrade."""
        while isinstance(self._h11.next_event(), h11.EndOfMessage):
            pass
        return bytes(self._h11.trailing_data[0])

    async def inform(self, status: int, headers: Headers = ()) -> None:
        """A 1xx answer; 101 ends HTTP on this connection."""
        event = h11.InformationalResponse(
            status_code=status, headers=list(headers), reason=HTTPStatus(status).phrase.encode()
        )
        await self.connection.send(self._h11.send(event) or b"")

    async def answer(
        self, status: int, body: bytes, headers: Headers = (), *, content_type: str = "application/json"
    ) -> None:
        """A whole answer with its length; the caller says ``Connection: close`` in ``headers`` to end with it."""
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        names = {name.lower() for name, _ in headers}
        own = [] if "content-type" in names else [("Content-Type", content_type)]
        event = h11.Response(
            status_code=status,
            headers=[*headers, *own, ("Content-Length", str(len(body)))],
            reason=phrase.encode(),
        )
        data = self._h11.send(event) or b""
        if not self._is_head:
            data += self._h11.send(h11.Data(data=body)) or b""
        self._h11.send(h11.EndOfMessage())
        await self.connection.send(data)

    async def answer_json(self, status: int, value: Mapping[str, Any], headers: Headers = ()) -> None:
        await self.answer(status, as_json(value), headers)

    def can_answer(self) -> bool:
        return self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def is_reusable(self) -> bool:
        """Whether another request may follow on this connection."""
        event: Any = None
        if self._h11.our_state is h11.DONE:
            try:
                event = self._h11.next_event() if self._h11.their_state is h11.SEND_BODY else None
            except h11.RemoteProtocolError:
                return False
        if isinstance(event, h11.Data):
            return False
        return self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
