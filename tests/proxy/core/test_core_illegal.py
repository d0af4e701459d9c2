"""Events that cannot happen raise and change nothing; a move outside the table raises."""

import pytest
from farmproxy.core.errors import BrokenInvariant, IllegalEvent, IllegalTransition
from farmproxy.core.events import (
    AgentSaid,
    CallerArrived,
    CallerGrew,
    CallerLeft,
    DialFailed,
    DialSucceeded,
    LeaseRenewed,
    PodsChanged,
    SessionEnded,
)
from farmproxy.core.pods import TABLE, PodState
from farmwire.reasons import DialResult, End

HELD, DIALLING, LEASED, CLOSING = "held", "dialling", "leased", "closing"

EVENTS = {
    "grew": (CallerGrew("c", 5), {HELD, DIALLING}),
    "left": (CallerLeft("c"), {HELD, DIALLING}),
    "succeeded": (DialSucceeded("c"), {DIALLING}),
    "failed": (DialFailed("c", DialResult.REFUSED), {DIALLING}),
    "failed-with-leased": (DialFailed("c", DialResult.LEASED), set()),
    "ended": (SessionEnded("c", End.DONE), {LEASED, CLOSING}),
    "renewed": (LeaseRenewed("c", 5), {LEASED}),
    "arrived": (CallerArrived("c", "d", 1, 1), {"ended", "unknown"}),
}


def bring_to(talk, phase: str) -> None:
    if phase != "unknown":
        talk.arrive("c", max_s=10)
    if phase not in (HELD, "unknown"):
        talk.seen("u1")
    if phase in (LEASED, CLOSING):
        talk.succeed("c")
    if phase == CLOSING:
        talk.until(10)
    if phase == "ended":
        talk.leave("c")


def picture(talk) -> object:
    timers = len(talk.farm._context.timers)
    stories = talk.farm.story("c"), talk.farm.story("u1")
    return talk.farm.snapshot(talk.now), talk.farm.counts("d"), timers, stories, talk.farm._arrivals


@pytest.mark.parametrize("phase", [HELD, DIALLING, LEASED, CLOSING, "ended", "unknown"])
@pytest.mark.parametrize("name", EVENTS)
def test_events_by_phase(talk, name: str, phase: str) -> None:
    event, legal = EVENTS[name]
    bring_to(talk, phase)
    if phase in legal:
        talk.tell(event)
        return
    before = picture(talk)
    with pytest.raises(IllegalEvent):
        talk.tell(event)
    assert picture(talk) == before


@pytest.mark.parametrize(
    "event",
    [
        CallerArrived("new", "no-pool", 1, 1),
        PodsChanged("no-pool"),
        AgentSaid("no-pool", "u1", True),
        AgentSaid("d", "no-pod", True),
        AgentSaid("d", "u1", True),  # known, but not asked
    ],
    ids=repr,
)
def test_unknown_pools_pods_and_questions(talk, event) -> None:
    talk.seen("u1")
    before = picture(talk)
    with pytest.raises(IllegalEvent):
        talk.tell(event)
    assert picture(talk) == before


def test_a_pod_unknown_to_us_may_go(talk) -> None:
    assert talk.gone("never-seen") == []


@pytest.mark.parametrize("start", PodState)
@pytest.mark.parametrize("end", [*PodState, None])
def test_moves_follow_the_table(talk, start: PodState, end: PodState | None) -> None:
    talk.seen("u1", ready=False)
    pod_table = talk.farm._pools["d"].pod_table
    pod = pod_table.pods["u1"]
    pod.state = start
    pod_table.counts[PodState.UNREADY] -= 1
    pod_table.counts[start] += 1
    if start is PodState.FREE:
        pod_table.free.add(pod)
    before = dict(pod_table.counts)
    if (start, end) in TABLE:
        pod_table.forget(pod) if end is None else pod_table.move(pod, end, "test")
        assert end is None or pod.state is end
        return
    with pytest.raises(IllegalTransition):
        pod_table.forget(pod) if end is None else pod_table.move(pod, end, "test")
    assert (pod.state, pod_table.counts) == (start, before)


def test_the_invariants_can_fail(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.farm._pools["d"].pod_table.pods["u1"].lease = "another"
    with pytest.raises(BrokenInvariant):
        talk.farm.check_invariants()


def test_a_waiting_caller_beside_a_free_pod_is_a_broken_invariant(talk) -> None:
    talk.arrive("c1")
    pool = talk.farm._pools["d"]
    pool.settle = lambda: None
    with pytest.raises(BrokenInvariant, match="wait while a pod of d is free"):
        talk.seen("u1")
