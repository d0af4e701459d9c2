"""The gate as a SOCKS5 server: what it answers, what it dials, and that it leaves nothing."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
from farmagent.render.gate import REFUSED, Gate, opened
from farmagent.render.targets import TargetPolicy

POLICY = TargetPolicy.parse("127.0.0.1/32")


@asynccontextmanager
async def echo_server():
    async def echo(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def asking(gate, request: bytes):
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    try:
        writer.write(b"\x05\x01\x00")
        assert await reader.readexactly(2) == b"\x05\x00"
        for byte in request:  # in pieces of one byte: the gate may not count on whole messages
            writer.write(bytes((byte,)))
            await writer.drain()
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


def named(host: str, port: int) -> bytes:
    return b"\x05\x01\x00\x03" + bytes((len(host),)) + host.encode() + port.to_bytes(2, "big")


def resolver(**names):
    async def resolve(name, _port):
        if name not in names:
            raise OSError("no such name")
        return [ip_address(one) for one in names[name].split()]

    return resolve


async def test_bytes_pass_both_ways_and_the_end_too():
    async with echo_server() as port, opened(POLICY, resolver()) as gate:
        async with asking(gate, named("127.0.0.1", port)) as (reader, writer):
            assert (await reader.readexactly(10))[1] == 0
            data = bytes(range(256)) * 8192  # 2 MiB
            writer.write(data)
            writer.write_eof()
            assert await reader.read(-1) == data
        assert gate.failures == {}


@pytest.mark.parametrize(
    ("host", "code", "word"),
    [
        ("127.0.0.2", 2, REFUSED),
        ("private", 2, REFUSED),
        ("nowhere", 4, "net::ERR_NAME_NOT_RESOLVED"),
        ("127.0.0.1", 4, "net::ERR_CONNECTION_REFUSED"),
        ("closed", 4, "net::ERR_CONNECTION_REFUSED"),
        ("999.1.1.1", 4, "net::ERR_NAME_NOT_RESOLVED"),
    ],
)
async def test_what_is_not_dialled_is_told_and_remembered(unused_tcp_port, host, code, word):
    names = resolver(private="127.0.0.2 10.0.0.1 ::1", closed="127.0.0.1")
    async with opened(POLICY, names) as gate:
        async with asking(gate, named(host.upper(), unused_tcp_port)) as (reader, _):
            assert (await reader.readexactly(10))[1] == code
        assert gate.failure(host, unused_tcp_port) == word
        assert gate.failure(host, 1) == ""
        assert gate.refused == ([f"{host}:{unused_tcp_port}"] if word == REFUSED else [])


@pytest.mark.parametrize("kind", ["ipv4", "ipv6", "mapped"])
async def test_raw_addresses_are_judged_too(kind):
    address = {"ipv4": "127.0.0.2", "ipv6": "::1", "mapped": "::ffff:10.0.0.1"}[kind]
    packed = ip_address(address).packed
    request = b"\x05\x01\x00" + (b"\x01" if len(packed) == 4 else b"\x04") + packed + b"\x00\x50"
    async with opened(POLICY, resolver()) as gate, asking(gate, request) as (reader, _):
        assert (await reader.readexactly(10))[1] == 2


async def test_of_a_name_s_addresses_only_the_permitted_one_is_dialled():
    names = resolver(mixed="127.0.0.2 10.0.0.1 127.0.0.1")
    async with (
        echo_server() as port,
        opened(POLICY, names) as gate,
        asking(gate, named("mixed", port)) as (reader, writer),
    ):
        assert (await reader.readexactly(10))[1] == 0
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


@pytest.mark.parametrize(
    "request_bytes", [b"\x04\x01\x00\x01", b"\x05\x02\x00\x01", b"\x05\x01\x00\x09", named("é", 1)]
)
async def test_what_is_no_request_is_closed(request_bytes):
    async with opened(POLICY, resolver()) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"\x05\x01\x00" + request_bytes)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(12)
        writer.close()


async def test_closing_ends_what_runs():
    waiting = asyncio.Event()

    async def never(_name, _port):
        waiting.set()
        await asyncio.Event().wait()

    async with echo_server() as port:
        async with opened(POLICY, never) as gate:
            running, writer = await asyncio.open_connection("127.0.0.1", gate.port)
            writer.write(b"\x05\x01\x00" + named("127.0.0.1", port))
            await running.readexactly(12)
            resolving, other = await asyncio.open_connection("127.0.0.1", gate.port)
            other.write(b"\x05\x01\x00" + named("x", 1))
            await asyncio.wait_for(waiting.wait(), 5)
        for reader in (running, resolving):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(100)
        assert gate._tasks == set()
        for one in (writer, other):
            one.close()


async def test_connections_that_come_as_the_gate_closes_are_not_left_open():
    aborted = []

    def writer(name):
        return SimpleNamespace(transport=SimpleNamespace(abort=lambda: aborted.append(name)))

    gate = Gate(POLICY, resolver())
    gate.accept(asyncio.StreamReader(), writer("before its first step"))
    await gate.close()
    assert aborted == ["before its first step"]
    gate.accept(asyncio.StreamReader(), writer("accepted late"))
    assert aborted == ["before its first step", "accepted late"]


@contextmanager
def dead_address(host: str) -> Iterator[int]:
    """A port where nothing answers: its listener's queue is full, so Linux drops what would connect."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((host, 0))
        listener.listen(0)
        waiting = stack.enter_context(socket.socket())
        waiting.connect(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_dead_first_address_does_not_keep_the_second_waiting():
    """Not the ten seconds that are given to all of them together: staggered dials, RFC 8305."""
    policy = TargetPolicy.parse("127.0.0.0/8")

    async def greet(_reader, writer):
        writer.write(b"hello")
        writer.close()
        await writer.wait_closed()

    with dead_address("127.0.0.2") as port:
        names = resolver(half="127.0.0.2 127.0.0.1")
        async with (
            await asyncio.start_server(greet, "127.0.0.1", port),
            opened(policy, names) as gate,
            asyncio.timeout(8),
            asking(gate, named("half", port)) as (reader, _),
        ):
            assert (await reader.readexactly(15))[-5:] == b"hello"


async def test_of_several_addresses_that_refuse_the_word_is_refused(unused_tcp_port):
    names = resolver(closed="127.0.0.1 127.0.0.2")
    policy = TargetPolicy.parse("127.0.0.0/8")
    async with opened(policy, names) as gate:
        async with asking(gate, named("closed", unused_tcp_port)) as (reader, _):
            assert (await reader.readexactly(10))[1] == 4
        assert gate.failure("closed", unused_tcp_port) == "net::ERR_CONNECTION_REFUSED"
