"""One TCP connection as a thing to read, write and splice, with backpressure both ways.

The rule: there is no half-close. FIN or RST from the peer ends the connection; what was read before stays
readable, what was written is flushed under the stall limit. Nothing here buffers without a bound.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import cast

READ_LIMIT_BYTES = 64 * 1024  # unread bytes before the peer is made to wait
LINGER_S = 2.0  # how long what the peer still sends is read after our last byte (else it would see a reset)
# A peer that vanished without FIN is noticed within about KEEPALIVE_IDLE_S + 3 * KEEPALIVE_INTERVAL_S.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 15, 5, 3
# The same for one that vanished while bytes were under way (TCP_USER_TIMEOUT). Linux counts a peer that only stopped
# reading as such a one too, so a stall must have been told as a stall well before.
UNACKNOWLEDGED_S, STALL_MARGIN_S = 30.0, 15.0
MAX_MS = 2**31 - 1


class PeerGone(ConnectionError):
    """The connection ended before this could be written."""


class Connection(asyncio.Protocol):
    """``on_made`` is called once with the connection; ``stall_s`` bounds how long the peer may not read."""

    def __init__(
        self, on_made: Callable[["Connection"], None] | None = None, *, stall_s: float | None = None
    ) -> None:
        self.ended = asyncio.Event()  # FIN, RST or our own close
        self.stalled = False
        self.error: Exception | None = None
        self._on_made = on_made
        self._stall_s = stall_s
        self._stall_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._chunks: deque[bytes] = deque()
        self._unread = 0
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._sink: Connection | None = None
        self._source: Connection | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        _keep_alive(transport.get_extra_info("socket"), self._stall_s)
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.write(data)
            return
        self._chunks.append(data)
        self._unread += len(data)
        self._arrived.set()
        if self._unread > READ_LIMIT_BYTES:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self._end()
        return False  # the transport flushes what was written, then closes

    def connection_lost(self, exc: Exception | None) -> None:
        if self.error is None:
            self.error = exc
        self._stop_stall_timer()
        self._end()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._start_stall_timer()
        if self._source is not None:
            self._source.transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable.set()
        self._stop_stall_timer()
        if self._source is not None:
            self._source.transport.resume_reading()

    # for the agent

    @property
    def transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise PeerGone("not connected yet")
        return self._transport

    async def receive(self) -> bytes:
        """The next bytes; b"" once the connection has ended and all was read."""
        while not self._chunks:
            if self.ended.is_set():
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = self._chunks.popleft()
        self._unread -= len(data)
        if self._unread <= READ_LIMIT_BYTES:
            self.transport.resume_reading()
        return data

    def unread(self, data: bytes) -> None:
        """Put bytes back in front of what is read next."""
        if data:
            self._chunks.appendleft(data)
            self._unread += len(data)
            self._arrived.set()

    def write(self, data: bytes) -> None:
        """Write without waiting; after the end the bytes are dropped."""
        if not self.ended.is_set():
            self.transport.write(data)

    async def send(self, data: bytes) -> None:
        """Write, and wait while the peer's side is full. Raises PeerGone once the connection ended."""
        self.write(data)
        await self._writable.wait()
        if self.ended.is_set():
            raise PeerGone("the peer closed the connection")

    async def finish(self) -> None:
        """After the last byte: FIN, read on for LINGER_S so that the peer gets the answer, then close."""
        if not self.ended.is_set():
            with suppress(OSError, RuntimeError):
                self.transport.write_eof()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    while await self.receive():
                        pass
        self.close()

    def close(self) -> None:
        """Flush under the stall limit, then close."""
        if self._transport is None:
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._start_stall_timer()
        self._end()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def splice(self, other: "Connection") -> None:
        """From now on every byte of one goes to the other, each side waiting for the other's reader."""
        for source, sink in ((self, other), (other, self)):
            source._sink, sink._source = sink, source  # noqa: SLF001
            while source._chunks:  # noqa: SLF001
                sink.write(source._chunks.popleft())  # noqa: SLF001
            source._unread = 0  # noqa: SLF001
            if sink._writable.is_set():  # noqa: SLF001
                source.transport.resume_reading()

    def _end(self) -> None:
        self.ended.set()
        self._arrived.set()
        self._writable.set()

    def _start_stall_timer(self) -> None:
        if self._stall_s is not None and self._stall_timer is None:
            self._stall_timer = asyncio.get_running_loop().call_later(self._stall_s, self._stall)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _stall(self) -> None:
        self.stalled = True
        self.abort()


async def connect(host: str, port: int, *, timeout_s: float) -> Connection:
    """Raises OSError (TimeoutError among them)."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, connection = await loop.create_connection(Connection, host, port)
    return connection


def _keep_alive(sock: socket.socket | None, stall_s: float | None) -> None:
    """Without a limit for stalls (Chrome, on loopback) bytes under way have none either."""
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)
        if stall_s is not None:
            limit_s = max(UNACKNOWLEDGED_S, stall_s + STALL_MARGIN_S)
            limit_ms = min(int(limit_s * 1000), MAX_MS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
