"""Ask Chrome's own HTTP pages (/json/...), which it serves on loopback. One request a connection."""

import asyncio
from dataclasses import dataclass

import h11

from farmagent.errors import ChromeLostError
from farmagent.http.connections import Connection, connect

ANSWER_LIMIT_BYTES = 32 * 1024 * 1024  # /json/protocol is 2 MB
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ChromeAnswer:
    status: int
    content_type: str
    body: bytes


async def ask(port: int, method: str, target: str, *, limit_s: float) -> ChromeAnswer:
    """Raises ChromeLostError when no whole answer came in time."""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(limit_s):
            connection = await connect(HOST, port, timeout_s=limit_s)
            return await _exchange(connection, f"{HOST}:{port}", method, target)
    except (OSError, h11.ProtocolError) as error:
        raise ChromeLostError(
            f"Chrome did not answer {method} {target.partition('?')[0]}: {error!r}"
        ) from error
    finally:
        if connection is not None:
            connection.abort()


async def _exchange(connection: Connection, host: str, method: str, target: str) -> ChromeAnswer:
    http = h11.Connection(h11.CLIENT)
    headers = [("Host", host), ("Connection", "close")]
    await connection.send(http.send(h11.Request(method=method, target=target, headers=headers)) or b"")
    await connection.send(http.send(h11.EndOfMessage()) or b"")
    status, content_type, body = 0, "text/plain", bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await connection.receive())
        elif isinstance(event, h11.Response):
            status = event.status_code
            content_type = next(
                (v.decode("latin-1") for k, v in event.headers if k == b"content-type"), content_type
            )
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > ANSWER_LIMIT_BYTES:
                raise h11.RemoteProtocolError("the answer is over the limit")
        elif isinstance(event, h11.EndOfMessage):
            return ChromeAnswer(status, content_type, bytes(body))
