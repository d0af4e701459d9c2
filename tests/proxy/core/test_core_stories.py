"""What a person reads of a pod: why each of its moves was made, and how it stands now."""

import pytest
from farmproxy.core.commands import Refuse
from farmproxy.core.errors import IllegalEvent
from farmproxy.core.events import DialFailed, PodsChanged, PodSeen
from farmproxy.core.limits import Limits
from farmproxy.core.snapshots import HeldView, LeaseView, PodView
from farmwire.reasons import Busy, DialResult, Refusal


def why(talk, key="u1"):
    """The pod's last move: its new state, and why."""
    return talk.farm.story(key)[-1].partition(" ")[2]


def recycling(talk):
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")


def test_the_story_of_a_lease(talk) -> None:
    recycling(talk)
    assert talk.farm.story("u1")[-3:] == [
        "0.000 dialling: c1",
        "0.000 leased: 101",
        "0.000 recycling: the session ended",
    ]
    talk.at(1.5).said("u1", free=True)
    assert talk.farm.story("u1")[-1] == "1.500 free: its agent says free"


def test_why_a_free_pod_became_unready(talk) -> None:
    talk.seen("u1")
    talk.seen("u1", ready=False)
    assert why(talk) == "unready: a slice turned to not ready"
    talk.seen("u1")
    assert why(talk) == "free: a slice turned to ready"
    talk.seen("u1", terminating=True)
    assert why(talk) == "unready: terminating"
    talk.gone("u1")
    assert why(talk) == "gone: no slice has it"


def test_why_a_doubted_pod_became_unready(talk) -> None:
    recycling(talk)
    talk.said("u1", free=True)
    talk.seen("u1", ready=False)
    talk.said("u1", free=None)
    assert why(talk) == "unready: a slice says not ready and its agent does not say free"


def test_why_a_recycling_pod_became_unready(talk) -> None:
    recycling(talk)
    talk.said("u1", free=False, busy=Busy.DRAINING)
    assert why(talk) == "unready: not clean within the recycle limit, or draining"


@pytest.mark.parametrize(("busy", "said"), [(Busy.RECYCLING, "409 recycling"), (None, "409")])
def test_why_a_busy_pod_became_unready(talk, busy, said) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1", DialResult.BUSY, busy)
    assert why(talk) == f"unready: {said}"


def test_why_a_pod_was_given_back(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.leave("c1")
    assert why(talk) == "free: given back unused"
    talk.arrive("c2")
    talk.seen("u1", terminating=True)
    talk.leave("c2")
    assert why(talk) == "unready: given back while terminating or not ready"


def test_why_a_pod_with_faults_is_where_it_is(talk) -> None:
    talk.seen("u1")
    talk.seen("u2", "u3", "u4", ready=False)
    talk.arrive("c1")
    talk.fail("c1")
    assert why(talk) == "set-aside: fault 1, for 2 s"
    assert talk.dials(talk.until(2)) == [("c1", "u1")]
    talk.fail("c1")
    assert why(talk) == "set-aside: fault 2, for 4 s"
    assert talk.pod("u1").faults == 2
    talk.leave("c1")
    talk.until(6)
    assert why(talk) == "free: its set-aside is over and the slice says ready"


def test_why_a_pod_set_aside_became_unready(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1")
    talk.leave("c1")
    talk.seen("u1", ready=False)
    talk.until(2)
    assert why(talk) == "unready: its set-aside is over and the slice says not ready"


def test_why_a_pod_set_aside_that_answers_became_unready(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1")
    assert talk.asks(talk.until(1)) == [("u1", 0.0)]
    talk.said("u1", free=False, busy=Busy.BUSY)
    assert why(talk) == "unready: its agent says not free"


def test_a_fault_of_a_pod_that_terminates(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.seen("u1", terminating=True)
    talk.fail("c1")
    assert why(talk) == "unready: a fault while terminating"


# Numbers of now


def test_how_long_a_pod_is_still_set_aside(talk) -> None:
    assert talk.farm.set_aside_s("d", "u1", 0.0) == 0.0
    talk.seen("u1")
    assert talk.farm.set_aside_s("d", "u1", 0.0) == 0.0
    talk.arrive("c1")
    talk.at(10).fail("c1")
    assert talk.farm.set_aside_s("d", "u1", 10.5) == 1.5
    assert talk.farm.set_aside_s("d", "u1", 11.75) == 0.25
    assert talk.farm.set_aside_s("d", "u1", 13.0) == 0.0


def test_a_pod_as_status_shows_it(talk) -> None:
    talk.tell(PodsChanged("d", seen=(PodSeen("u1", "browser-1", "fd00::7", 9222, True, False),)))
    free = PodView("u1", "browser-1", "[fd00::7]:9222", "free", False, None, 0, 0.0)
    assert talk.view.pods == [free]
    talk.arrive("c1")
    assert talk.pod("u1").lease == "c1"
    talk.at(5).fail("c1")
    assert talk.view.pods == [PodView("u1", "browser-1", "[fd00::7]:9222", "set-aside", False, None, 1, 2.0)]
    talk.now = 6.5
    assert talk.pod("u1").set_aside_s == 0.5
    talk.now = 7.5  # the wake is late
    assert talk.pod("u1").set_aside_s == 0.0
    talk.until(7.5)
    talk.succeed("c1")
    assert (talk.pod("u1").lease, talk.pod("u1").set_aside_s) == ("c1", 0.0)
    talk.end("c1")
    assert (talk.state("u1"), talk.pod("u1").lease) == ("recycling", None)
    assert talk.pod("u1").address == "[fd00::7]:9222"


def test_held_and_leased_callers_as_status_shows_them(talk) -> None:
    talk.at(1).arrive("c1", hold_s=10.0, max_s=60.0)
    talk.now = 10.5
    assert talk.view.held == [HeldView("c1", "label-c1", 9.5, 0.5, 0)]
    talk.now = 12.0  # the wake is late
    assert talk.view.held[0].left_s == 0.0
    talk.now = 10.5
    talk.seen("u1")
    talk.succeed("c1")
    talk.now = 70.0
    assert talk.view.leases == [LeaseView("c1", "label-c1", "pod-u1", 59.5, 0.5)]
    talk.now = 72.0
    assert talk.view.leases[0].left_s == 0.0


# What a refused caller reads


def test_what_who_waited_too_long_reads(talk) -> None:
    talk.arrive("c1", hold_s=2.5)
    detail = "no pod of pool d became free within 2.5 s"
    assert Refuse("c1", Refusal.HOLD_TIMEOUT, detail) in talk.until(3)


def test_what_who_would_not_wait_reads(talk) -> None:
    assert talk.arrive("c1", hold_s=0) == [
        Refuse("c1", Refusal.NO_FREE_POD, "no pod of pool d is free, and hold is 0")
    ]
    talk.seen("u1")
    talk.arrive("c2", hold_s=0)
    detail = "every free pod failed the dial, and hold is 0"
    assert Refuse("c2", Refusal.NO_FREE_POD, detail) in talk.fail("c2")


def test_what_who_came_to_a_full_queue_reads(new_talk) -> None:
    talk = new_talk(Limits(hold_limit=1))
    talk.arrive("c1")
    assert talk.arrive("c2") == [Refuse("c2", Refusal.QUEUE_FULL, "1 callers are held already")]


def test_what_who_came_to_a_closed_door_reads(talk) -> None:
    talk.close_door()
    detail = "the proxy is shutting down and takes no new callers"
    assert talk.arrive("c1") == [Refuse("c1", Refusal.DRAINING, detail)]


def test_an_impossible_failure_says_whose_and_which(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    with pytest.raises(IllegalEvent, match="caller c1: a dial cannot fail with leased"):
        talk.tell(DialFailed("c1", DialResult.LEASED))
