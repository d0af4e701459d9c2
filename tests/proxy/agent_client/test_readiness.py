"""What an agent's /readyz means to the core and to the lease that ended on its pod."""

import json
from types import SimpleNamespace

import pytest
from farmproxy.core.commands import AskAgent, StopAsking
from farmproxy.core.events import AgentSaid
from farmproxy.upstream.agent_client import NOT_REACHED, SILENT, Response
from farmproxy.upstream.readiness_polls import ReadinessPolls
from farmwire.reasons import Busy, End


class AgentClient:
    def __init__(self):
        self.asked = []
        self.on_response = []
        self.cancelled = []

    def ask(self, address, target, wait_s, on_response):
        number = len(self.asked)
        self.asked.append((address, target, wait_s))
        self.on_response.append(on_response)
        return SimpleNamespace(cancel=lambda: self.cancelled.append(number))


class Ends:
    def __init__(self):
        self.told = []

    def asked(self, lease):
        self.told.append(("asked", lease))

    def heard(self, lease, end, *, reached):
        self.told.append((lease, end, reached))


class Asked:
    def __init__(self):
        self.agent_client, self.ends, self.events = AgentClient(), Ends(), []
        self.readiness_polls = ReadinessPolls(self.agent_client)
        self.readiness_polls.dispatch = self.events.append
        self.readiness_polls.lease_log = self.ends

    def ask(self, pod="u1", *, lease=None):
        self.readiness_polls.ask(AskAgent("p", pod, "10.0.0.9", 9222, 2.5, lease))

    def answers(self, status, told, number=0):
        self.agent_client.on_response[number](Response(status, json.dumps(told).encode()))


@pytest.fixture
def asked():
    return Asked()


def test_what_an_agent_is_asked(asked):
    asked.ask()
    asked.ask("u2", lease="L1")
    assert asked.agent_client.asked == [
        (("10.0.0.9", 9222), "/readyz?wait=2.500", 2.5),
        (("10.0.0.9", 9222), "/readyz?wait=2.500&lease=L1", 2.5),
    ]
    assert asked.ends.told == [("asked", "L1")]


@pytest.mark.parametrize(
    ("status", "told", "free", "busy"),
    [
        (200, {}, True, None),
        (200, {"reason": "busy"}, True, None),
        (503, {"reason": "recycling"}, False, Busy.RECYCLING),
        (503, {"reason": "draining"}, False, Busy.DRAINING),
        (503, {"reason": "something new"}, False, None),
        (503, {}, False, None),
        (500, {"reason": "busy"}, None, None),
        (404, {}, None, None),
    ],
)
def test_what_the_core_is_told(asked, status, told, free, busy):
    asked.ask()
    asked.answers(status, told)
    assert asked.events == [AgentSaid("p", "u1", free, busy)]
    assert asked.ends.told == []


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"reason": 3}', b"[" * 5000])
def test_an_answer_that_cannot_be_read_has_its_status_only(asked, body):
    asked.ask(lease="L1")
    asked.agent_client.on_response[0](Response(200, body))
    assert asked.events == [AgentSaid("p", "u1", True, None)]
    assert asked.ends.told[1:] == [("L1", None, True)]


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ({"lease": "L1", "end": "browser-died"}, End.BROWSER_DIED),
        ({"lease": "L1", "end": "something new"}, None),
        ({"lease": "L1"}, None),
        ({"lease": "L2", "end": "browser-died"}, None),  # another lease's end
        ({"end": "browser-died"}, None),
    ],
)
def test_how_the_lease_ended_is_the_agent_s_word_on_this_very_lease(asked, told, end):
    asked.ask(lease="L1")
    asked.answers(503, told)
    assert asked.ends.told == [("asked", "L1"), ("L1", end, True)]


@pytest.mark.parametrize(("answer", "reached"), [(NOT_REACHED, False), (SILENT, True)])
def test_no_answer_says_whether_the_agent_was_reached(asked, answer, reached):
    asked.ask(lease="L1")
    asked.agent_client.on_response[0](answer)
    assert asked.ends.told[1:] == [("L1", None, reached)]
    assert asked.events == [AgentSaid("p", "u1", None, None)]


def test_a_stopped_question_is_cancelled_and_its_lease_ended_as_the_proxy_saw(asked):
    asked.ask("u1", lease="L1")
    asked.ask("u2")
    asked.readiness_polls.stop(StopAsking("p", "u1"))
    assert asked.agent_client.cancelled == [0]
    assert asked.ends.told == [("asked", "L1"), ("L1", None, True)]
    asked.readiness_polls.stop(StopAsking("p", "u2"))
    assert asked.agent_client.cancelled == [0, 1]
    assert len(asked.ends.told) == 2
    assert asked.events == []


def test_a_pod_can_be_asked_again_after_its_answer(asked):
    asked.ask()
    asked.answers(503, {"reason": "busy"})
    asked.ask()
    asked.answers(200, {}, number=1)
    assert [said.free for said in asked.events] == [False, True]
