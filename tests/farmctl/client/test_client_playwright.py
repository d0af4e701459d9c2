"""What the real Playwright says when the door gives no browser, and that each of its sayings is understood."""

import asyncio
import contextlib

import pytest

from farmctl.client import DoorUnreachable, JobLost, Refused, connect

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: 59\r\n\r\n"
    b'{"reason":"hold-timeout","detail":"2 s","retry_after_s": 5}'
)


@contextlib.asynccontextmanager
async def door(answer):
    heads = []

    async def serve(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname()), heads


async def test_a_refusal_keeps_its_reason_and_when_to_ask_again():
    async with door(REFUSAL) as (base, heads):
        with pytest.raises(Refused) as caught:
            async with connect(base, token="secret", hold_s=2, label="me"):
                pass
    assert (caught.value.status, caught.value.reason, caught.value.retry_after_s) == (503, "hold-timeout", 5)
    assert heads[0].startswith("GET /devtools/browser/farm?hold=2&label=me HTTP/1.1")
    assert "Authorization: Bearer secret" in heads[0]
    assert "secret" not in str(caught.value)


async def test_a_door_that_closes_without_an_answer_lost_the_job():
    async with door(b"") as (base, _):
        with pytest.raises(JobLost):
            async with connect(base):
                pass


async def test_no_door_means_that_nothing_was_sent(unused_tcp_port):
    with pytest.raises(DoorUnreachable):
        async with connect(f"http://127.0.0.1:{unused_tcp_port}"):
            pass
