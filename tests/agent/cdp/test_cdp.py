"""The CDP client against a scripted WebSocket server: every command ends, whatever the other side does."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from farmagent.chrome import cdp
from websockets.asyncio.server import ServerConnection, serve

Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def chrome_like(handler: Handler) -> AsyncIterator[str]:
    async with serve(handler, "127.0.0.1", 0, max_size=None, close_timeout=0.2) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/devtools/browser/x"


async def echo(socket: ServerConnection) -> None:
    async for text in socket:
        message = json.loads(text)
        await socket.send(json.dumps({"id": message["id"], "result": message}))


async def silent(socket: ServerConnection) -> None:
    async for _ in socket:
        pass


async def test_a_command_carries_its_session_and_gets_its_own_answer() -> None:
    async def out_of_order(socket: ServerConnection) -> None:
        messages = [json.loads(await socket.recv()) for _ in range(3)]
        for message in reversed(messages):
            await socket.send(json.dumps({"id": message["id"], "result": message}))

    async with chrome_like(out_of_order) as url, cdp.connect(url) as browser:
        first, second, third = await asyncio.gather(
            browser.send("A.a", {"x": 1}, session_id="S"), browser.send("B.b"), browser.send("C.c")
        )
    assert (first["method"], first["sessionId"], first["params"]) == ("A.a", "S", {"x": 1})
    assert (second["method"], third["method"]) == ("B.b", "C.c")
    assert "sessionId" not in second


async def test_an_error_keeps_code_and_message() -> None:
    async def refuse(socket: ServerConnection) -> None:
        message = json.loads(await socket.recv())
        await socket.send(json.dumps({"id": message["id"], "error": {"code": -32601, "message": "no such"}}))

    async with chrome_like(refuse) as url, cdp.connect(url) as browser:
        with pytest.raises(cdp.CdpError) as caught:
            await browser.send("Nope.nope")
    assert (caught.value.code, caught.value.message, str(caught.value)) == (
        -32601,
        "no such",
        "Nope.nope: no such",
    )


async def test_an_unanswered_command_times_out_and_the_late_answer_is_dropped() -> None:
    async def late(socket: ServerConnection) -> None:
        first = json.loads(await socket.recv())
        second = json.loads(await socket.recv())
        for message in (first, second):
            await socket.send(json.dumps({"id": message["id"], "result": {"of": message["method"]}}))

    async with chrome_like(late) as url, cdp.connect(url) as browser:
        with pytest.raises(cdp.CdpTimeout):
            await browser.send("Slow.one", timeout_s=0.02)
        assert await browser.send("Next.one") == {"of": "Next.one"}
        assert browser._pending == {}


async def test_a_cancelled_command_leaves_nothing() -> None:
    async with chrome_like(silent) as url, cdp.connect(url) as browser, asyncio.TaskGroup() as group:
        task = group.create_task(browser.send("Never.answered", timeout_s=None))
        while not browser._pending:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert browser._pending == {}


@pytest.mark.parametrize("how", ["close", "abort", "garbage", "binary"])
async def test_the_end_of_the_connection_reaches_everyone_who_waits(how: str) -> None:
    async def leave(socket: ServerConnection) -> None:
        await socket.recv()
        if how == "close":
            await socket.close()
        elif how == "abort":
            socket.transport.abort()
        else:
            await socket.send(b"\xff\x00" if how == "binary" else "not json")
            await socket.wait_closed()

    async with chrome_like(leave) as url, cdp.connect(url) as browser:
        with browser.events() as events:
            answers = await asyncio.gather(
                browser.send("A.a"), events.next(), browser.wait_for("X.x"), return_exceptions=True
            )
        assert [type(answer) for answer in answers] == [cdp.CdpLost] * 3
        assert browser.ended.is_set()
        with pytest.raises(cdp.CdpLost):
            await browser.send("B.b")


async def test_events_go_to_their_session_in_order() -> None:
    async def speak(socket: ServerConnection) -> None:
        await socket.recv()
        for session, number in (("S", 1), ("T", 2), ("S", 3), (None, 4)):
            event = {"method": "E.e", "params": {"n": number}}
            await socket.send(json.dumps(event | ({"sessionId": session} if session else {})))
        await socket.wait_closed()

    async with chrome_like(speak) as url, cdp.connect(url) as browser:
        with browser.events("S") as mine, browser.events() as every, browser.events("") as own:
            await browser.post("Start.start")
            seen = [(await every.next(timeout_s=2)).params["n"] for _ in range(4)]
            assert seen == [1, 2, 3, 4]
            assert [(await mine.next()).params["n"] for _ in range(2)] == [1, 3]
            assert (await own.next()).params == {"n": 4}
            with pytest.raises(TimeoutError):
                await mine.next(timeout_s=0.01)
        assert browser._listeners == {}


HALVES = r'{"text": "a\ud83d|\udc00b|\ud83d\ude00|\\ud83d", "\udead": 1}'


async def test_half_a_surrogate_pair_is_replaced_in_answers_and_events() -> None:
    async def speak(socket: ServerConnection) -> None:
        number = json.loads(await socket.recv())["id"]
        await socket.send(f'{{"method": "E.e", "params": {HALVES}, "sessionId": "S"}}')
        await socket.send(f'{{"id": {number}, "result": {HALVES}}}')
        await socket.wait_closed()

    async with chrome_like(speak) as url, cdp.connect(url) as browser:
        with browser.events("S") as events:
            answer = await browser.send("A.a")
            wanted = {"text": "a\ufffd|\ufffdb|\U0001f600|\\ud83d", "\ufffd": 1}
            assert (await events.next()).params == answer == wanted


async def test_an_event_that_a_listener_stumbles_over_costs_that_event_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def speak(socket: ServerConnection) -> None:
        number = json.loads(await socket.recv())["id"]
        for params in ("[]", '{"n": 1}', "null", '{"n": "x"}', '{"n": 2}'):
            await socket.send(f'{{"method": "E.e", "params": {params}}}')
        await socket.send('{"method": "Target.detachedFromTarget", "params": 5}')
        await socket.send(f'{{"id": {number}, "result": {{}}}}')
        await socket.wait_closed()

    seen: list[int] = []
    async with chrome_like(speak) as url, cdp.connect(url) as browser:
        with browser.listening(lambda event: seen.append(int(event.params["n"]))):
            assert await browser.send("A.a") == {}
    assert seen == [1, 2]
    assert capsys.readouterr().out.count('"event":"cdp-event"') == 4


async def test_wait_for_takes_only_what_is_asked_for() -> None:
    async def speak(socket: ServerConnection) -> None:
        await socket.recv()
        for number in range(3):
            await socket.send(json.dumps({"method": "E.e", "params": {"n": number}, "sessionId": "S"}))

    async with chrome_like(speak) as url, cdp.connect(url) as browser, asyncio.TaskGroup() as group:
        waiting = group.create_task(
            browser.wait_for("E.e", session_id="S", where=lambda params: params["n"] == 2)
        )
        while not browser._listeners:
            await asyncio.sleep(0)
        await browser.post("Start.start")
        assert (await waiting).params == {"n": 2}


async def test_a_hundred_megabytes_pass_and_more_is_told_apart() -> None:
    async def big(socket: ServerConnection) -> None:
        async for text in socket:
            message = json.loads(text)
            data = "x" * message["params"]["bytes"]
            await socket.send(json.dumps({"id": message["id"], "result": {"data": data}}))

    async with chrome_like(big) as url:
        async with cdp.connect(url) as browser:
            answer = await browser.send("Page.captureScreenshot", {"bytes": 100_000_000})
            assert len(answer["data"]) == 100_000_000
        async with cdp.connect(url, max_bytes=1_000_000) as browser:
            with pytest.raises(cdp.CdpLost) as caught:
                await browser.send("Page.captureScreenshot", {"bytes": 1_000_001})
            assert caught.value.too_big


async def test_no_connection_is_a_lost_one() -> None:
    with pytest.raises(cdp.CdpLost, match="no connection to Chrome"):
        async with cdp.connect("ws://127.0.0.1:1/devtools/browser/x"):
            pass


async def test_a_listener_that_never_answers_the_handshake_is_given_up() -> None:
    gone = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(cdp.CdpLost):
            async with cdp.connect(f"ws://127.0.0.1:{port}/", timeout_s=0.05):
                pass
        await asyncio.wait_for(gone.wait(), 5)  # and its socket is closed, not leaked


async def test_closing_twice_and_sending_after_is_plain() -> None:
    async with chrome_like(echo) as url, cdp.connect(url) as browser:
        assert (await browser.send("A.a"))["method"] == "A.a"
        await browser.close()
        await browser.close()
        with pytest.raises(cdp.CdpLost, match="this side"):
            await browser.send("A.a")
