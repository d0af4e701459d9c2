"""Name look-ups against a DNS server of the test's own: one that answers some names and says nothing to others."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from farmagent.render import names, render
from farmagent.render.gate import opened as gate_opened
from farmagent.render.targets import TargetPolicy

A, NO_SUCH_NAME = 1, 3


class Server(asyncio.DatagramProtocol):
    """Answers ``known`` names' A records, says nothing to names under silent.test, and no to all others."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport  # no DatagramTransport by its class

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, at = [], 12
        while length := data[at]:
            labels.append(data[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name, kind = ".".join(labels).lower(), int.from_bytes(data[at + 1 : at + 3], "big")
        self.asked.append(name)
        if name.endswith(".silent.test"):
            return
        found = [ip_address(self.known[name]).packed] if name in self.known and kind == A else []
        code = 0 if name in self.known else NO_SUCH_NAME
        head = data[:2] + bytes((0x81, 0x80 | code)) + b"\0\1" + bytes((0, len(found))) + b"\0\0\0\0"
        records = b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + one for one in found)
        self.transport.sendto(head + data[12 : at + 5] + records, addr)


@asynccontextmanager
async def serving(tmp_path: Path, more: str = "", **known: str) -> AsyncIterator[tuple[Server, str]]:
    """The server, and the path of a resolv.conf that names it; keys hold ``_`` for a dot."""
    loop = asyncio.get_running_loop()
    server = Server({name.replace("_", "."): address for name, address in known.items()})
    transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
    path = tmp_path / "resolv.conf"
    path.write_text(f"nameserver 127.0.0.1:{transport.get_extra_info('sockname')[1]}\n{more}")
    try:
        yield server, str(path)
    finally:
        transport.close()


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_sixty_names_without_an_answer_hold_nobody_up(tmp_path: Path) -> None:
    """The next job's look-up does not wait for them, and they end with their own job."""
    async with serving(tmp_path, good_test="127.0.0.7") as (server, conf), names.opened(conf) as other:
        async with names.opened(conf) as resolve:
            waiting = [asyncio.ensure_future(resolve(f"n{n}.silent.test", 80)) for n in range(60)]  # noqa: TID251
            await settled(lambda: len({name for name in server.asked if "silent" in name}) == 60)
            assert list(await other("good.test", 80)) == [ip_address("127.0.0.7")]
            assert not [one for one in waiting if one.done()]
            for one in waiting:
                one.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in ended} == {asyncio.CancelledError}
        assert list(await other("good.test", 80)) == [ip_address("127.0.0.7")]


@pytest.mark.chrome
async def test_a_page_of_unanswered_names_does_not_hold_up_the_next_job(
    tmp_path: Path, chrome: str, pages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty pictures whose names nobody answers; the job gives up, and the next page is there before its own time."""
    policy = TargetPolicy.parse("127.0.0.0/8")
    markup = "".join(f"<img src=//n{n}.silent.test/>" for n in range(60))
    async with serving(tmp_path, page_test="127.0.0.1") as (server, conf):
        here = names.opened
        monkeypatch.setattr(names, "opened", lambda: here(conf))
        for path, status in ((f"/raw?html={quote(markup)}", 504), ("/page", 200)):
            job = {"url": pages.url(path, "page.test"), "timeout_s": 6}
            answer = await render(chrome, json.dumps(job).encode(), policy=policy)
            assert answer.status == status, answer.body
        assert len({name for name in server.asked if "silent" in name}) > 6


async def test_a_gate_that_closes_ends_its_look_ups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as (server, conf):
        here = names.opened
        monkeypatch.setattr(names, "opened", lambda: here(conf))
        async with gate_opened(TargetPolicy()) as gate:
            writers = []
            for n in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", gate.port)
                writers.append(writer)
                host = f"n{n}.silent.test".encode()
                writer.write(b"\5\1\0\5\1\0\3" + bytes((len(host),)) + host + b"\0\x50")
            await settled(lambda: len(set(server.asked)) == 20)
        assert gate._tasks == set()
        for writer in writers:
            writer.close()


@pytest.mark.parametrize(("name", "address"), [("good", "127.0.0.7"), ("a.b", "127.0.0.8")])
async def test_the_search_list_is_followed_as_in_a_pod(tmp_path: Path, name: str, address: str) -> None:
    known = {"good_ns_svc_test": "127.0.0.7", "a_b_svc_test": "127.0.0.8"}
    more = "search ns.svc.test svc.test\noptions ndots:5\n"
    async with serving(tmp_path, more, **known) as (_, conf), names.opened(conf) as resolve:
        assert list(await resolve(name, 80)) == [ip_address(address)]


def name_in_hosts() -> tuple[str, str]:
    for line in Path("/etc/hosts").read_text().splitlines():
        address, *found = line.partition("#")[0].split() or [""]
        if found and "localhost" not in found[0]:
            return found[0], address
    pytest.skip("/etc/hosts names nobody but localhost")


async def test_the_hosts_file_comes_first(tmp_path: Path) -> None:
    name, address = name_in_hosts()
    async with serving(tmp_path, **{name: "127.0.0.77"}) as (server, conf), names.opened(conf) as resolve:
        assert ip_address(address) in await resolve(name, 80)
        assert name not in server.asked


@pytest.mark.parametrize("name", ["localhost", "a.localhost"])
async def test_localhost_asks_nobody(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path, a_localhost="8.8.8.8") as (server, conf), names.opened(conf) as resolve:
        assert [str(one) for one in await resolve(name, 80)] == ["127.0.0.1", "::1"]
        assert server.asked == []


@pytest.mark.parametrize("name", ["no.test", "x" * 64 + ".test", ".", "a..b"])
async def test_a_name_that_is_none_is_an_os_error(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path) as (_, conf), names.opened(conf) as resolve:
        with pytest.raises(OSError, match=r"\w"):
            await resolve(name, 80)
