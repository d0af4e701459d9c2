"""Who gets which pod and when: arrival order, old places, the choice among free pods, failed dials."""

from collections import Counter

import pytest
from farmproxy.core.commands import AbandonDial, Dial
from farmproxy.core.free_pods import Choice
from farmwire.reasons import Busy, DialResult


def test_a_free_pod_is_granted_at_once(talk) -> None:
    talk.seen("u1")
    talk.at(3)
    commands = talk.arrive("c1", max_s=60)
    assert commands == [
        Dial("c1", "d", "u1", "pod-u1", "10.0.0.9", 9222, 0, 1, 60, grantable_since=3),
    ]
    assert talk.state("u1") == "dialling"


def test_grantable_since_is_when_both_were_there(talk) -> None:
    talk.arrive("c1")
    talk.at(7)
    (dial,) = [c for c in talk.seen("u1") if isinstance(c, Dial)]
    assert (dial.grantable_since, dial.waited_s) == (7, 7)


def test_held_callers_are_served_in_order_of_arrival(talk) -> None:
    talk.arrive("c1", "c2", "c3")
    assert talk.dials(talk.seen("u1", "u2")) == [("c1", "u1"), ("c2", "u2")]
    assert talk.held == ["c3"]


def test_a_failed_dial_puts_the_caller_back_at_its_old_place(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", "c2", "c3")
    talk.fail("c1")
    assert talk.held == ["c1", "c2", "c3"]
    commands = talk.seen("u2")
    assert talk.dials(commands) == [("c1", "u2")]
    assert [c.dials for c in commands if isinstance(c, Dial)] == [2]


def test_a_requeued_caller_keeps_its_deadline(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", hold_s=10)
    talk.at(9)
    talk.fail("c1")
    assert talk.refusals(talk.until(9.9)) == []
    assert talk.refusals(talk.until(10)) == [("c1", "hold-timeout")]


@pytest.mark.parametrize("result", sorted(set(DialResult) - {DialResult.LEASED}))
def test_what_a_dial_s_result_does_to_pod_and_caller(talk, result: DialResult) -> None:
    states = {
        DialResult.BUSY: "unready",
        DialResult.CALLER: "free",
        DialResult.REJECTED: "free",
        DialResult.ABANDONED: "free",
    }
    over = result in (DialResult.CALLER, DialResult.REJECTED, DialResult.ABANDONED)
    talk.seen("u1")
    talk.arrive("c1")
    commands = talk.fail("c1", result, Busy.BUSY if result is DialResult.BUSY else None)
    assert talk.state("u1") == states.get(result, "set-aside")
    assert talk.pod("u1").faults == (talk.state("u1") == "set-aside")
    assert talk.refusals(commands) == []  # the driver answers scope "caller" itself
    assert talk.held == ([] if over else ["c1"])


def test_a_caller_avoids_the_incarnation_that_failed_it_while_another_is_free(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.busy("c1")
    # The same slice change brings back u1, first in order of freedom, and u2.
    assert talk.dials(talk.seen("u1", "u2", fresh=True)) == [("c1", "u2")]


def test_a_caller_takes_the_incarnation_that_failed_it_when_no_other_is_free(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.busy("c1")
    assert talk.dials(talk.seen("u1", fresh=True)) == [("c1", "u1")]


def test_a_pod_freed_goes_to_the_head_of_the_queue_not_to_who_comes_next(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.arrive("c2")
    talk.end("c1")
    assert talk.dials(talk.arrive("c3")) == []
    assert talk.dials(talk.said("u1", free=True)) == [("c2", "u1")]


def test_leaving_the_queue_never_causes_a_dial(talk) -> None:
    talk.arrive("c1", "c2")
    assert talk.leave("c1") == []
    assert talk.dials(talk.seen("u1", "u2")) == [("c2", "u1")]


def test_leaving_during_a_dial_gives_the_pod_back_unused_to_the_next(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", "c2")
    commands = talk.leave("c1")
    assert commands[0] == AbandonDial("c1")
    assert talk.dials(commands) == [("c2", "u1")]


def test_pools_do_not_mix(talk) -> None:
    talk.arrive("c1", pool="other")
    assert talk.dials(talk.seen("u1")) == []
    assert talk.dials(talk.seen("u1", pool="other")) == [("c1", "u1")]
    assert talk.farm.counts("d").demand == 0
    assert talk.farm.counts("other").demand == 1


def test_longest_free_spreads_the_jobs_evenly(talk) -> None:
    keys = [f"u{n}" for n in range(4)]
    talk.seen(*keys)
    used: Counter[str] = Counter()
    for n in range(100):
        pairs = [talk.dials(talk.arrive(f"c{n}-{k}"))[0] for k in range(2)]
        for id_, key in pairs:
            used[key] += 1
            talk.succeed(id_)
        for id_, key in pairs:
            talk.end(id_)
            talk.said(key, free=True)
    assert max(used.values()) <= 2 * min(used.values())


def test_most_recently_confirmed_prefers_the_pod_heard_of_last(new_talk) -> None:
    talk = new_talk(choice=Choice.MOST_RECENTLY_CONFIRMED)
    talk.seen("u1", "u2", "u3")
    talk.seen("u2")
    assert talk.dials(talk.arrive("c1")) == [("c1", "u2")]
    assert talk.dials(talk.arrive("c2")) == [("c2", "u3")]


def test_avoiding_works_in_both_orders(new_talk) -> None:
    talk = new_talk(choice=Choice.MOST_RECENTLY_CONFIRMED)
    talk.seen("u1")
    talk.arrive("c1")
    talk.busy("c1")
    assert talk.dials(talk.seen("u2", "u1", fresh=True)) == [("c1", "u2")]
