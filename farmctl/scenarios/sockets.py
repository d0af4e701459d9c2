"""A caller made by hand: the WebSocket handshake byte for byte over a plain socket, one CDP command, no library.

It sees what a library hides: the door's own headers, the moment of the 101, FIN or RST as the way to leave.
"""

import asyncio
import base64
import json
import os
import socket
import struct
from dataclasses import dataclass
from urllib.parse import urlsplit

from farmwire import headers, paths

from farmctl.client.endpoints import LeaseOptions, browser_url, http_url
from farmctl.client.errors import JobLost, from_answer
from farmctl.client.transport import reach

HEAD_LIMIT = 65536
CLOSE_FRAME, TEXT_FRAME = 0x8, 0x1
EMPTY = ("Content-Length: 0",)
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",  # any will do: the answer's is not checked
)


@dataclass(frozen=True, slots=True)
class Granted:
    lease: str
    pod: str  # namespace/name/uid
    waited_ms: int
    dials: int


class RawCaller:
    """One connection to the door. ``ask`` waits through the hold; ``leave`` may be called at any moment."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def reach(cls, door: str) -> "RawCaller":
        return cls(*await reach(door, buffer=HEAD_LIMIT))

    async def ask(self, door: str, lease_options: LeaseOptions) -> Granted:
        """Send the upgrade; return what the 101 says. Raises Refused, or JobLost when the door closes."""
        told, _ = await self._exchange(
            _request("GET", browser_url(door, lease_options), lease_options, UPGRADE), 101
        )
        return Granted(
            lease=told.get(headers.LEASE.lower(), ""),
            pod=told.get(headers.POD.lower(), ""),
            waited_ms=int(told.get(headers.WAITED_MS.lower(), "0")),
            dials=int(told.get(headers.DIALS.lower(), "0")),
        )

    async def take(self, door: str, lease_options: LeaseOptions) -> Granted:
        """POST /leases: a lease by name, which the same connection gives back with ``give_back``."""
        _, body = await self._exchange(
            _request("POST", http_url(door, paths.LEASES, lease_options), lease_options, EMPTY), 201
        )
        told = json.loads(body)
        return Granted(lease=told["id"], pod=told["pod"], waited_ms=0, dials=0)

    async def give_back(self, door: str, lease_options: LeaseOptions, lease: str) -> None:
        url = http_url(door, f"{paths.LEASES}/{lease}")
        await self._exchange(_request("DELETE", url, lease_options, EMPTY), 204)

    async def _exchange(self, request: bytes, expected: int) -> tuple[dict[str, str], bytes]:
        self._writer.write(request)
        try:
            status, told = _parsed(await self._reader.readuntil(b"\r\n\r\n"))
            # A 101 has no body: what follows it is the session's.
            body = (
                b"" if status == 101 else await self._reader.readexactly(int(told.get("content-length", "0")))
            )
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise JobLost("the door closed the connection without an answer", reason="closed") from error
        if status != expected:
            raise from_answer(status, body, told.get("retry-after"))
        return told, body

    async def command(self, method: str) -> dict[str, object]:
        """Send one CDP command to the browser and return its answer. Raises JobLost when the session ends."""
        self._writer.write(_frame(json.dumps({"id": 1, "method": method}).encode()))
        try:
            while True:
                kind, payload = await self._read_frame()
                if kind == CLOSE_FRAME:
                    raise JobLost("the session was closed", reason="closed")
                if kind == TEXT_FRAME and b'"id":1' in payload.replace(b" ", b""):
                    answer: dict[str, object] = json.loads(payload)
                    return answer
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise JobLost("the session broke off", reason="closed") from error

    async def broken(self) -> None:
        """Return when the other side ends the session."""
        try:
            while await self._reader.read(HEAD_LIMIT):
                pass
        except ConnectionError:
            return

    def leave(self, how: str = "fin") -> None:
        """Go: ``fin`` closes in the ordinary way, ``rst`` as a killed process with unread data does."""
        if how == "rst":
            sock = self._writer.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()

    async def _read_frame(self) -> tuple[int, bytes]:
        first, second = await self._reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
        return first & 0x0F, await self._reader.readexactly(length)


def _request(method: str, url: str, lease_options: LeaseOptions, more: tuple[str, ...]) -> bytes:
    parts = urlsplit(url)
    lines = [
        f"{method} {parts.path}{'?' if parts.query else ''}{parts.query} HTTP/1.1",
        f"Host: {parts.netloc}",
        *(f"{name}: {value}" for name, value in lease_options.headers().items()),
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *rest = head.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in rest if line)
    return int(first.split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in fields}


def _frame(payload: bytes) -> bytes:
    # RFC 6455 5.3: a client masks every frame. Commands here are short: below 126 bytes.
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([0x80 | TEXT_FRAME, 0x80 | len(payload)]) + mask + masked
