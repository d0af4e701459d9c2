"""How long and how many: deadlines, the bounds of the queue, hold=0, the closed door."""

from farmproxy.core.limits import Limits


def test_the_hold_ends_at_its_deadline_and_not_before(talk) -> None:
    talk.arrive("short", hold_s=5)
    talk.arrive("long", hold_s=700)
    assert talk.refusals(talk.until(4.999)) == []
    assert talk.refusals(talk.until(5)) == [("short", "hold-timeout")]
    assert talk.refusals(talk.until(699.9)) == []
    assert talk.refusals(talk.until(700)) == [("long", "hold-timeout")]
    assert talk.farm.counts("d").demand == 0


def test_a_dial_under_way_at_the_deadline_may_succeed(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", hold_s=5)
    assert talk.refusals(talk.until(20)) == []
    talk.succeed("c1")
    assert talk.state("u1") == "leased"


def test_a_dial_that_fails_after_the_deadline_ends_the_caller_at_once(talk) -> None:
    talk.seen("u1", "u2")
    talk.arrive("c1", hold_s=5)
    talk.until(5.5)
    commands = talk.fail("c1")
    assert talk.refusals(commands) == [("c1", "hold-timeout")]
    assert talk.dials(commands) == []


def test_hold_0_is_granted_a_free_pod(talk) -> None:
    talk.seen("u1")
    assert talk.dials(talk.arrive("c1", hold_s=0)) == [("c1", "u1")]


def test_hold_0_is_refused_at_once_when_none_is_free(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    assert talk.refusals(talk.arrive("c2", hold_s=0)) == [("c2", "no-free-pod")]


def test_hold_0_tries_every_free_pod_before_it_is_refused(talk) -> None:
    talk.seen("u1", "u2")
    assert talk.dials(talk.arrive("c1", hold_s=0)) == [("c1", "u1")]
    assert talk.dials(talk.fail("c1")) == [("c1", "u2")]
    assert talk.refusals(talk.fail("c1")) == [("c1", "no-free-pod")]


def test_the_queue_is_bounded_in_number(new_talk) -> None:
    talk = new_talk(Limits(hold_limit=2))
    talk.arrive("c1", "c2")
    assert talk.refusals(talk.arrive("c3")) == [("c3", "queue-full")]
    talk.leave("c1")
    assert talk.refusals(talk.arrive("c4")) == []
    assert talk.held == ["c2", "c4"]


def test_the_queue_is_bounded_in_bytes(new_talk) -> None:
    talk = new_talk(Limits(hold_bytes=100))
    talk.arrive("c1", cost=60)
    assert talk.refusals(talk.arrive("c2", cost=41)) == [("c2", "queue-full")]
    assert talk.refusals(talk.arrive("c3", cost=40)) == []
    talk.leave("c1")
    assert talk.refusals(talk.arrive("c4", cost=60)) == []


def test_of_two_held_the_one_that_outgrows_the_memory_is_refused(new_talk) -> None:
    talk = new_talk(Limits(hold_bytes=100))
    talk.arrive("small", "large", cost=10)
    assert talk.refusals(talk.grow("large", 90)) == []
    assert talk.refusals(talk.grow("large", 91)) == [("large", "queue-full")]
    assert talk.refusals(talk.grow("small", 100)) == []
    assert talk.refusals(talk.arrive("c3", cost=1)) == [("c3", "queue-full")]


def test_a_caller_that_grows_while_it_is_dialled_is_let_finish_and_keeps_its_place(new_talk) -> None:
    talk = new_talk(Limits(hold_bytes=100))
    talk.seen("u1")
    talk.arrive("c1", cost=10)
    assert talk.refusals(talk.grow("c1", 1000)) == []
    assert talk.refusals(talk.fail("c1")) == []
    assert talk.refusals(talk.arrive("c2", cost=1)) == [("c2", "queue-full")]


def test_a_caller_granted_at_once_is_never_refused_for_the_queue(new_talk) -> None:
    talk = new_talk(Limits(hold_limit=0, hold_bytes=0))
    talk.seen("u1")
    assert talk.dials(talk.arrive("c1", cost=1000)) == [("c1", "u1")]


def test_a_requeued_caller_is_never_refused_for_the_queue(new_talk) -> None:
    talk = new_talk(Limits(hold_limit=1, hold_bytes=10))
    talk.seen("u1")
    talk.arrive("c1", "c2", cost=10)
    assert talk.refusals(talk.fail("c1")) == []
    assert talk.held == ["c1", "c2"]


def test_a_closed_door_refuses_new_callers_and_serves_the_held(talk) -> None:
    talk.arrive("c1", "c2", hold_s=10)
    talk.close_door()
    assert talk.refusals(talk.arrive("c3")) == [("c3", "draining")]
    assert talk.dials(talk.seen("u1")) == [("c1", "u1")]
    assert talk.refusals(talk.arrive("c4")) == [("c4", "draining")]
    assert talk.refusals(talk.until(10)) == [("c2", "hold-timeout")]
    talk.close_door()  # twice is fine


def test_a_closed_door_refuses_even_when_a_pod_is_free(talk) -> None:
    talk.seen("u1")
    talk.close_door()
    assert talk.refusals(talk.arrive("c1")) == [("c1", "draining")]
    assert talk.state("u1") == "free"


def test_a_late_wake_grants_first_what_came_free_before_the_deadline(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", hold_s=3)
    talk.fail("c1")  # set aside until 2
    talk.wake_at = float("inf")
    talk.at(5)
    talk.wake_at = 5
    commands = talk.until(5)
    assert talk.dials(commands) == [("c1", "u1")]
    assert talk.refusals(commands) == []


def test_thousands_time_out_at_once(talk) -> None:
    ids = [f"c{n}" for n in range(300)]
    talk.farm.check_invariants = lambda: None  # type: ignore[method-assign]  # O(n) each
    talk.arrive(*ids, hold_s=5)
    assert talk.refusals(talk.until(5)) == [(id_, "hold-timeout") for id_ in ids]
