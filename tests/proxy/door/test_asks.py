"""Questions to agents: kept connections, one question at a time, and agents that lie, hang or are gone."""

import asyncio
import socket

import pytest
from farmproxy.net.poller import Poller
from farmproxy.upstream.agent_client import AgentClient

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Agent:
    """Answers each request on a connection with the next of ``script``: bytes, None to close, ... to hang, a tuple to
    say that and close.
    """

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.connections = 0
        self._tasks = set()

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    async def _serve(self, reader, writer):
        self.connections += 1
        self._tasks.add(asyncio.current_task())
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.script.pop(0)
                if answer is None:
                    return
                if answer is ...:
                    await reader.read()
                    return
                if isinstance(answer, tuple):
                    writer.write(*answer)
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def stop(self):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Asking:
    def __init__(self):
        self.bugs = []
        self.now = 0.0
        self.poller = Poller(lambda error, handler: self.bugs.append(error))
        self.poller.start(asyncio.get_running_loop())
        self.agent_client = AgentClient(self.poller, lambda: self.now, connect_s=2, answer_s=2)

    def begin(self, address, wait_s=0.0):
        heard = asyncio.get_running_loop().create_future()
        question = self.agent_client.ask(address, "/readyz?wait=1", wait_s, heard.set_result)
        assert not heard.done()
        return question, heard

    async def ask(self, address, wait_s=0.0):
        return await asyncio.wait_for(self.begin(address, wait_s)[1], 5)


@pytest.fixture
async def asking():
    asking = Asking()
    yield asking
    asking.agent_client.close()
    asking.poller.stop()
    assert asking.bugs == []


@pytest.fixture
async def new_agent():
    agents = []

    async def make(*script):
        agents.append(await Agent(*script).start())
        return agents[-1]

    yield make
    for agent in agents:
        await agent.stop()


async def test_one_connection_serves_many_questions(asking, new_agent):
    agent = await new_agent(ANSWER, ANSWER, ANSWER)
    for _ in range(3):
        heard = await asking.ask(agent.address)
        assert (heard.status, heard.body) == (200, b"{}")
    assert agent.connections == 1
    assert agent.requests[0].startswith(b"GET /readyz?wait=1 HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_a_kept_connection_that_was_closed_is_asked_anew(asking, new_agent):
    agent = await new_agent(ANSWER, None, ANSWER)
    await asking.ask(agent.address)
    assert (await asking.ask(agent.address)).status == 200
    assert agent.connections == 2


async def test_after_half_an_answer_a_question_is_not_asked_again(asking, new_agent):
    # The agent lives and had taken it: only a connection that died unheard may be tried anew.
    agent = await new_agent(ANSWER, (ANSWER[:10],), ANSWER)
    await asking.ask(agent.address)
    heard = await asking.ask(agent.address)
    assert (heard.status, heard.reached) == (0, True)
    assert (agent.connections, len(agent.requests)) == (1, 2)


async def test_of_two_connections_to_an_agent_one_is_kept_and_the_other_closed(asking, new_agent):
    agent = await new_agent(ANSWER, ANSWER, ANSWER)
    both = [asking.begin(agent.address)[1] for _ in range(2)]
    assert [heard.status for heard in await asyncio.wait_for(asyncio.gather(*both), 5)] == [200, 200]
    assert agent.connections == 2
    assert len(asking.poller.handlers) == 1
    await asking.ask(agent.address)
    assert agent.connections == 2
    asking.agent_client.close()
    assert len(asking.poller.handlers) == 0


async def test_a_new_connection_that_is_closed_is_no_answer(asking, new_agent):
    agent = await new_agent(None)
    heard = await asking.ask(agent.address)
    assert (heard.status, heard.reached) == (0, True)


async def test_a_refused_connection_is_not_reached(asking, new_agent):
    agent = await new_agent()
    await agent.stop()
    heard = await asking.ask(agent.address)
    assert (heard.status, heard.reached) == (0, False)


@pytest.mark.parametrize(
    "rubbish",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 X\r\nContent-Length: 0\r\n\r\n",
        b"x" * 20_000,
    ],
)
async def test_rubbish_is_silence(asking, new_agent, rubbish):
    agent = await new_agent(rubbish, ANSWER)
    heard = await asking.ask(agent.address)
    assert (heard.status, heard.reached) == (0, True)
    assert (await asking.ask(agent.address)).status == 200
    assert agent.connections == 2


async def test_an_answer_with_close_or_more_behind_it_is_not_kept(asking, new_agent):
    agent = await new_agent(
        b"HTTP/1.1 503 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ANSWER + b"more", ANSWER
    )
    assert (await asking.ask(agent.address)).status == 503
    assert (await asking.ask(agent.address)).body == b"{}"
    assert (await asking.ask(agent.address)).status == 200
    assert agent.connections == 3


async def test_a_hanging_agent_is_given_up_after_its_wait_and_a_little(asking, new_agent):
    agent = await new_agent(...)
    _, heard = asking.begin(agent.address, wait_s=30.0)
    while not agent.requests:
        await asyncio.sleep(0.005)
    asking.now = 32.9
    asking.agent_client.sweep()
    assert not heard.done()
    asking.now = 33.1
    asking.agent_client.sweep()
    assert heard.result().status == 0


async def test_a_cancelled_question_is_never_answered(asking, new_agent):
    agent = await new_agent(..., ANSWER)
    question, heard = asking.begin(agent.address)
    while not agent.requests:
        await asyncio.sleep(0.005)
    question.cancel()
    assert (await asking.ask(agent.address)).status == 200
    assert not heard.done()
    heard.cancel()


async def test_idle_connections_are_given_up_where_descriptors_are_few(asking, new_agent):
    agent = await new_agent(ANSWER, ANSWER)
    await asking.ask(agent.address)
    asking.agent_client.keeps = False
    await asking.ask(agent.address)
    assert len(asking.poller.handlers) == 0


async def test_no_descriptor_at_all_is_silence_a_little_later(asking, new_agent, monkeypatch):
    agent = await new_agent()

    def none_left(address):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("farmproxy.upstream.agent_client.outgoing", none_left)
    _, heard = asking.begin(agent.address)
    assert not heard.done()
    asking.agent_client.sweep()
    assert heard.result().status == 0


async def test_an_answer_in_pieces_is_one_answer(asking, new_agent):
    long = b"X-Why: " + b"w" * 600 + b"\r\n"
    for head in (b"", long):
        answer = ANSWER.replace(b"\r\n\r\n", b"\r\n" + head + b"\r\n")
        for at in (12, len(answer) - 1):
            agent = await new_agent((answer[:at],))
            heard = await asking.ask(agent.address)
            assert heard.status == 0  # half of one is none
            agent = await new_agent(answer)
            assert (await asking.ask(agent.address)).body == b"{}"


async def test_an_address_that_takes_no_connection_was_not_reached(asking, new_agent):
    agent = await new_agent()
    _, heard = asking.begin(agent.address)
    asking.now = 1.9
    asking.agent_client.sweep()
    assert not heard.done()
    asking.now = 2.1  # nothing came from the network meanwhile
    asking.agent_client.sweep()
    assert (heard.result().status, heard.result().reached) == (0, False)
    assert len(asking.poller.handlers) == 0


async def test_a_cancelled_question_takes_its_connection_and_timers_along(asking, new_agent):
    agent = await new_agent(...)
    question, heard = asking.begin(agent.address)
    question.cancel()
    assert len(asking.poller.handlers) == len(asking.agent_client.connect) == 0
    assert [len(timer) for timer in asking.agent_client._timers.values()] == [0]
    heard.cancel()


async def test_an_answered_question_leaves_no_timer(asking, new_agent):
    agent = await new_agent(ANSWER)
    await asking.ask(agent.address)
    assert [len(timer) for timer in asking.agent_client._timers.values()] == [0]
    assert len(asking.agent_client.connect) == 0


async def test_a_kept_connection_that_its_agent_closes_is_forgotten(asking, new_agent):
    agent = await new_agent(ANSWER)
    await asking.ask(agent.address)
    assert len(asking.agent_client._idle) == 1
    await agent.stop()
    async with asyncio.timeout(5):
        while asking.poller.handlers:
            await asyncio.sleep(0)
    assert asking.agent_client._idle == {}


async def test_a_kept_connection_that_cannot_be_written_to_is_replaced(asking, new_agent):
    agent = await new_agent(ANSWER, ANSWER)
    await asking.ask(agent.address)
    asking.agent_client._idle[agent.address].sock.shutdown(socket.SHUT_WR)
    assert (await asking.ask(agent.address)).status == 200


async def test_few_idle_connections_are_closed_at_a_time(asking, new_agent):
    # closing hundreds at once would stop the relay
    agents = [await new_agent(ANSWER) for _ in range(20)]
    for agent in agents:
        await asking.ask(agent.address)
    asking.agent_client.keeps = False
    agent = await new_agent(ANSWER)
    await asking.ask(agent.address)
    assert len(asking.agent_client._idle) == 4
    assert agents[-1].address in asking.agent_client._idle  # the oldest went
