"""Raw callers against a door of a few lines: fates, spans, leaving, retries."""

import asyncio

import aiohttp
import pytest

from farmctl.client import LostJobPolicy
from farmctl.scenarios import crowds
from farmctl.scenarios.crowds import Ask, Crowd
from farmctl.scenarios.drivers import Driver
from farmctl.scenarios.results import Outcome, blast_radius
from farmctl.scenarios.timeline import Silent, Timeline

QUICK = LostJobPolicy(attempts=3, base_s=0.01)


@pytest.fixture
async def crowd(door):
    listener = Silent()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        crowd = Crowd(
            door.url,
            "test",
            group=group,
            driver=Driver(),
            session=session,
            timeline=Timeline(listener),
            listener=listener,
        )
        yield crowd
        crowd.stop()


async def test_a_raw_caller_is_told_its_pod_and_ends_done(crowd, door):
    caller = crowd.raw("one")
    await crowd.settle(5)
    assert caller.outcome is Outcome.DONE
    assert [(grant.pod, grant.lease, grant.dials) for grant in caller.grants] == [("farm/p1/u1", "L1", 2)]
    assert [span.state for span in caller.spans] == ["waiting", "session"]
    assert all(span.to_ms is not None for span in caller.spans)
    assert "label=test%2Fone" in door.heads[0]
    assert blast_radius(crowd.fates()) == 0


async def test_a_refusal_is_a_fate(crowd, door):
    door.refusal = (503, {"reason": "no-free-pod", "retry_after_s": 1})
    caller = crowd.raw("one", ask=Ask(hold_s=0))
    await crowd.settle(5)
    assert caller.outcome is Outcome.REFUSED
    assert "no-free-pod" in caller.errors[0]
    assert blast_radius(crowd.fates()) == 1


async def test_a_session_broken_from_the_other_side_is_lost_and_its_retry_does_not_unsee_it(crowd, door):
    stay = asyncio.Event()
    caller = crowd.raw("one", until=stay, ask=Ask(retry=QUICK))
    await caller.in_session.wait()
    door.sessions[0].transport.abort()
    while len(door.sessions) < 2:
        await asyncio.sleep(0.01)
    stay.set()
    await crowd.settle(5)
    assert caller.outcome is Outcome.DONE
    assert caller.attempts == 2
    assert caller.error_kinds == ["JobLost"]
    assert [span.state for span in caller.spans] == ["waiting", "session", "backoff", "waiting", "session"]
    assert blast_radius(crowd.fates()) == 1


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("held", [True, False])
async def test_leaving_is_no_error(crowd, door, how, held):
    if held:
        door.holds = True
    caller = crowd.raw("one", until=asyncio.Event())
    while not door.heads or (not held and not caller.in_session.is_set()):
        await asyncio.sleep(0.01)
    caller.leave(how)
    await crowd.settle(5)
    assert caller.outcome is Outcome.LEFT
    assert not caller.errors


async def test_who_has_not_ended_is_unfinished_and_never_done(crowd, door):
    door.holds = True
    caller = crowd.raw("one")
    await crowd.settle(0.05)
    assert caller.fate().outcome == Outcome.UNFINISHED


async def test_a_door_that_is_not_there_is_lost(crowd, door, unused_tcp_port):
    crowd._door = f"http://127.0.0.1:{unused_tcp_port}"
    caller = crowd.raw("one")
    await crowd.settle(5)
    assert caller.outcome is Outcome.LOST
    assert caller.error_kinds == ["DoorUnreachable"]


async def test_a_page_that_never_opens_ends_its_caller(monkeypatch):
    """Seen with Playwright when the browser died under it: the scenario would have waited for its own limit."""

    class Context:
        async def new_page(self):
            await asyncio.Event().wait()

    class Browser:
        contexts = (Context(),)

    monkeypatch.setattr(crowds, "PAGE_LIMIT_S", 0.01)
    with pytest.raises(TimeoutError):
        await crowds._new_page(Browser())
