"""The gate: a SOCKS5 server on loopback through which a guarded page's every connection goes.

The rule: a name is resolved here, its addresses are judged here, and exactly the judged address is dialled. So a
redirect, a subresource, a frame, a worker, a WebSocket or a name that changes its address (DNS rebinding) cannot
reach what the policy refuses. What Chrome is told is one word for all failures; the gate remembers the real one.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from aiohappyeyeballs import start_connection
from farmwire.addresses import Address

from farmagent.render import names
from farmagent.render.names import Resolver
from farmagent.render.targets import BadTarget, TargetPolicy, literal

CONNECT_TIMEOUT_S = 10.0  # for all addresses of a name together; the job's own limit may come first
ATTEMPT_DELAY_S = 0.25  # between dials of a name's addresses: RFC 8305's Connection Attempt Delay
CHUNK_BYTES = 256 * 1024
REFUSED = "refused-target"  # in place of a net::ERR_ word: the policy said no
FAILURES_MAX = 1000  # distinct targets remembered of one page

# RFC 1928: replies
_OK, _NOT_ALLOWED, _UNREACHABLE = 0, 2, 4
_V5, _CONNECT, _IPV4, _NAME, _IPV6 = 5, 1, 1, 3, 4

Target = tuple[str, int]


class NotDialled(Exception):
    """No connection; ``word`` is Chrome's word for it, or REFUSED."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Gate:
    """One job's gate. ``failures`` says, by target, why the last connection to it was not made."""

    def __init__(self, policy: TargetPolicy, resolver: Resolver) -> None:
        self._policy = policy
        self._resolver = resolver
        self.failures: dict[Target, str] = {}
        self.port = 0
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def refused(self) -> list[str]:
        """host:port of every target that the policy refused."""
        return [f"{host}:{port}" for (host, port), word in self.failures.items() if word == REFUSED]

    def failure(self, host: str, port: int) -> str:
        """Chrome's word for why ``host`` was not reached, or the empty string."""
        return self.failures.get((host.strip("[]").lower(), port), "")

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:  # it was on its way when the listener closed
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="render-gate")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not in the task: one that is cancelled before its first step would leave the connection open.
        task.add_done_callback(lambda _task: writer.transport.abort())

    async def close(self) -> None:
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, UnicodeDecodeError, ValueError):
            await self._introduce(reader, writer)

    async def _introduce(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _version, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(bytes((_V5, 0)))
        host, port = await _read_target(reader)
        try:
            far_reader, far_writer = await self._dial(host, port)
        except NotDialled as error:
            self._remember((host, port), error.word)
            writer.write(_reply(_NOT_ALLOWED if error.word == REFUSED else _UNREACHABLE))
            await writer.drain()
            await reader.read(1)  # Chrome closes; an abort before it has read the reply would hide it
            return
        self.failures.pop((host, port), None)
        try:
            writer.write(_reply(_OK))
            await _splice(reader, writer, far_reader, far_writer)
        finally:
            far_writer.transport.abort()

    def _remember(self, target: Target, word: str) -> None:
        if target in self.failures or len(self.failures) < FAILURES_MAX:
            self.failures[target] = word

    async def _dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await self._dial_one_of(await self._addresses(host, port), port)
        except TimeoutError as error:
            raise NotDialled("net::ERR_CONNECTION_TIMED_OUT") from error

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            found: Sequence[Address] = literal(host) or await self._resolver(host, port)
        except (BadTarget, OSError, UnicodeError) as error:
            raise NotDialled("net::ERR_NAME_NOT_RESOLVED") from error
        permitted = self._policy.permitted(found)
        if found and not permitted:
            raise NotDialled(REFUSED)
        return permitted

    async def _dial_one_of(
        self, addresses: Sequence[Address], port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The first to answer wins: one that is dead costs a quarter of a second, not the job's time."""
        if not addresses:
            raise NotDialled("net::ERR_NAME_NOT_RESOLVED")
        try:
            connection = await start_connection(
                [_addr_info(address, port) for address in addresses], happy_eyeballs_delay=ATTEMPT_DELAY_S
            )
            return await asyncio.open_connection(sock=connection, limit=CHUNK_BYTES)
        except ConnectionRefusedError as error:
            raise NotDialled("net::ERR_CONNECTION_REFUSED") from error
        except ConnectionResetError as error:
            raise NotDialled("net::ERR_CONNECTION_RESET") from error
        except OSError as error:
            raise NotDialled("net::ERR_ADDRESS_UNREACHABLE") from error


def _addr_info(address: Address, port: int) -> tuple[int, int, int, str, tuple[str, int]]:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port)


async def _read_target(reader: asyncio.StreamReader) -> Target:
    version, command, _reserved, kind = await reader.readexactly(4)
    if (version, command) != (_V5, _CONNECT):
        raise ValueError("not a SOCKS5 CONNECT")
    if kind == _NAME:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("ascii")
    elif kind in (_IPV4, _IPV6):
        host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == _IPV4 else 16)))
    else:
        raise ValueError("an unknown kind of address")
    return host.strip("[]").lower(), int.from_bytes(await reader.readexactly(2), "big")


def _reply(code: int) -> bytes:
    return bytes((_V5, code, 0, _IPV4, 0, 0, 0, 0, 0, 0))


async def _splice(
    near_reader: asyncio.StreamReader,
    near_writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Copy both ways until both directions have ended; an end of one is passed on as such (half-close)."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            near_writer.transport.abort()
            far_writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        group.create_task(pump(near_reader, far_writer))
        group.create_task(pump(far_reader, near_writer))


@asynccontextmanager
async def opened(policy: TargetPolicy, resolver: Resolver | None = None) -> AsyncGenerator[Gate, None]:
    """A listening gate on an ephemeral loopback port; all its connections and look-ups end with the block."""
    async with AsyncExitStack() as stack:
        if resolver is None:
            resolver = await stack.enter_async_context(names.opened())
        gate = Gate(policy, resolver)
        async with _listening(gate):
            yield gate


@asynccontextmanager
async def _listening(gate: Gate) -> AsyncGenerator[None, None]:
    server = await asyncio.start_server(gate.accept, "127.0.0.1", 0, limit=CHUNK_BYTES)
    try:
        gate.port = server.sockets[0].getsockname()[1]
        yield
    finally:
        server.close()
        await gate.close()
