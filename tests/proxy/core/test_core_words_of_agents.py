"""The agent's word in the corners: what overtakes it, how soon it is asked for again, and what it may not change."""

import pytest
from farmproxy.core.commands import AskAgent
from farmproxy.core.free_pods import Choice
from farmproxy.core.limits import Limits
from farmproxy.core.readiness import next_aside_s
from farmwire.reasons import Busy, DialResult


def unready(talk, hold_s=300.0):
    """A pod that a slice had admitted once; a held caller has it asked at once."""
    talk.seen("u1")
    talk.seen("u1", ready=False)
    return talk.arrive("c1", hold_s=hold_s)


def record(talk, key="u1"):
    return talk.farm._pools["d"].pod_table.pods[key]


def test_a_lease_overtakes_the_agent_s_word(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.said("u1", free=True)
    talk.seen("u1", ready=False)  # does not overrule the word: the pod is fit by it alone
    assert record(talk).fit
    talk.arrive("c2")
    talk.succeed("c2")
    assert record(talk).word is None
    assert not record(talk).fit


def test_a_409_overtakes_the_agent_s_word(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.said("u1", free=True)
    talk.seen("u1", ready=False)
    talk.arrive("c2")
    talk.busy("c2")
    assert record(talk).word is False


@pytest.mark.parametrize("via", ["doubt", "set aside"])
def test_an_agent_that_says_it_drains_is_not_asked_again(talk, via) -> None:
    talk.seen("u1")
    if via == "doubt":
        talk.lease("c1", "u1")
        talk.end("c1")
        talk.said("u1", free=True)
        talk.seen("u1", ready=False)
        talk.said("u1", free=False, busy=Busy.DRAINING)
        talk.arrive("c2")
    else:
        talk.arrive("c1")
        talk.fail("c1")
        talk.until(1)
        assert talk.asks(talk.said("u1", free=False, busy=Busy.DRAINING)) == []
    assert talk.state("u1") == "unready"
    assert talk.asks(talk.until(120)) == []


def test_an_agent_that_recycles_and_says_it_drains_is_not_asked_again(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.arrive("c2")
    talk.said("u1", free=False, busy=Busy.DRAINING)
    assert talk.asks(talk.until(120)) == []


def test_an_unready_agent_that_says_it_drains_is_not_asked_again(talk) -> None:
    assert talk.asks(unready(talk)) == [("u1", 30.0)]
    talk.said("u1", free=False, busy=Busy.DRAINING)
    assert talk.asks(talk.until(120)) == []


def test_a_pod_set_aside_whose_agent_is_busy_is_asked_although_nobody_waits(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1")
    talk.until(1)
    talk.leave("c1")
    assert talk.asks(talk.said("u1", free=False, busy=Busy.BUSY)) == [("u1", 30.0)]


def pauses(talk, answer, number):
    """The pauses between answers that come at once and the next questions."""
    found = []
    for _ in range(number):
        answer()
        at = talk.now
        commands = []
        while not talk.asks(commands):
            commands = talk.until(talk.wake_at)
        found.append(round(talk.now - at, 3))
    return found


@pytest.mark.parametrize(
    ("free", "grow"),
    [(False, [0.5, 1, 2, 2, 2]), (None, [0.5, 1, 2, 4, 8, 16, 30, 30])],
)
def test_answers_that_come_at_once_are_followed_by_growing_pauses(talk, free, grow) -> None:
    unready(talk, hold_s=float("inf"))
    assert pauses(talk, lambda: talk.said("u1", free=free), len(grow)) == grow


def test_an_agent_that_cannot_be_asked_after_a_lease_is_asked_less_and_less(new_talk) -> None:
    talk = new_talk(Limits(recycle_s=100.0))
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    assert pauses(talk, lambda: talk.said("u1", free=None), 6) == [0.5, 1, 2, 4, 8, 16]


def test_an_agent_that_recycles_quickly_is_asked_often(new_talk) -> None:
    talk = new_talk(Limits(recycle_s=100.0))
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    assert pauses(talk, lambda: talk.said("u1", free=False, busy=Busy.RECYCLING), 5) == [0.5, 1, 2, 2, 2]


def test_a_slice_that_turns_to_ready_ends_the_growth_of_pauses(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.busy("c1")  # asked at once
    for _ in range(3):
        talk.said("u1", free=True)
        talk.busy("c1")
        while record(talk).ask is None:
            talk.until(talk.wake_at)
    assert record(talk).pause_s > 1
    talk.seen("u1", fresh=True)
    assert record(talk).pause_s == 0.0
    assert talk.asks(talk.busy("c1")) == [("u1", 30.0)]


def test_the_last_question_of_a_recycle_waits_no_longer_than_its_limit(new_talk) -> None:
    talk = new_talk(Limits(recycle_s=3.0))
    talk.seen("u1")
    talk.lease("c1", "u1")
    assert AskAgent("d", "u1", "10.0.0.9", 9222, 3.0, lease="c1") in talk.end("c1")
    talk.at(2).said("u1", free=False, busy=Busy.RECYCLING)
    assert talk.asks(talk.until(2.5)) == [("u1", 0.5)]


def test_a_pod_given_back_ready_is_not_doubted(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.said("u1", free=True)
    talk.arrive("c2")
    talk.seen("u1", ready=False)
    talk.seen("u1", ready=True)
    assert talk.asks(talk.leave("c2")) == []
    assert talk.state("u1") == "free"


def test_a_pod_that_is_not_ready_by_its_slice_and_was_not_doubted_is_given_back_without_a_question(
    talk,
) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.seen("u1", ready=False)
    talk.end("c1")
    talk.said("u1", free=True)
    talk.arrive("c2")
    assert talk.asks(talk.leave("c2")) == []
    assert talk.state("u1") == "free"


def test_a_pod_that_was_gone_when_given_back_is_forgotten(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.gone("u1")
    talk.leave("c1")
    assert talk.view.pods == []
    assert talk.farm.story("u1")[-1].endswith("gone: no slice has it and its dial failed")


@pytest.mark.parametrize(
    ("others", "known", "length"), [(0, 1, 4.0), (2, 7, 4.0), (2, 6, 2.0), (1, 3, 2.0), (1, 4, 4.0)]
)
def test_a_third_of_the_pool_and_no_less_stops_the_doubling(talk, others, known, length) -> None:
    talk.seen("u1")
    pod = record(talk)
    pod.aside_s = 2.0
    assert next_aside_s(pod, Limits(), others_aside=others, known=known) == length


def test_an_agent_s_word_confirms_a_free_pod(new_talk) -> None:
    talk = new_talk(choice=Choice.MOST_RECENTLY_CONFIRMED)
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.said("u1", free=True)
    talk.seen("u2")
    talk.seen("u1", ready=False)
    talk.said("u1", free=True)
    assert talk.dials(talk.arrive("c2")) == [("c2", "u1")]


def test_a_short_set_aside_doubles_as_well(new_talk) -> None:
    talk = new_talk(Limits(set_aside_s=0.5))
    talk.seen("u1")
    talk.seen("u2", "u3", "u4", ready=False)
    talk.arrive("c1")
    talk.fail("c1")
    for at, length in ((0.5, 1.0), (1.5, 2.0)):
        assert talk.dials(talk.until(at)) == [("c1", "u1")]
        talk.fail("c1")
        assert record(talk).aside_s == length


def test_who_does_not_wait_avoids_the_pod_that_failed_it_while_another_is_free(talk) -> None:
    talk.seen("u1", "u2")
    assert talk.dials(talk.arrive("c1", hold_s=0)) == [("c1", "u1")]
    assert talk.dials(talk.fail("c1", DialResult.BROKEN)) == [("c1", "u2")]


def test_who_waits_for_less_than_a_second_is_held_after_a_failure(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", hold_s=0.5)
    assert talk.refusals(talk.fail("c1")) == []
    assert talk.held == ["c1"]


def test_a_dial_that_fails_at_the_deadline_is_the_end(talk) -> None:
    talk.seen("u1", "u2")
    talk.arrive("c1", hold_s=5.0)
    talk.now = 5.0  # the wake for the deadline comes after it
    assert talk.refusals(talk.fail("c1")) == [("c1", "hold-timeout")]


def test_a_short_pause_is_a_pause(talk) -> None:
    unready(talk)
    assert talk.asks(talk.said("u1", free=False)) == []
    assert talk.asks(talk.until(0.5)) == [("u1", 30.0)]


def test_a_pause_of_a_pod_that_terminates_is_over_for_good(talk) -> None:
    unready(talk)
    talk.said("u1", free=False)
    talk.seen("u1", terminating=True)
    assert record(talk).timer is None
    assert talk.asks(talk.until(120)) == []
