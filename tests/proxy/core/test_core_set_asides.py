"""Faults: how long a pod is left alone, what ends that sooner, when the time does not grow."""

import pytest
from farmproxy.core.commands import Dial
from farmproxy.core.limits import Limits
from farmwire.reasons import FAULTS, Busy


def fault(talk, id_: str, key: str) -> float:
    """Let a caller fail on the pod; how long it is set aside then."""
    assert talk.dials(talk.arrive(id_)) == [(id_, key)]
    talk.fail(id_)
    talk.leave(id_)
    return talk.pod(key).set_aside_s


@pytest.mark.parametrize("result", sorted(FAULTS))
def test_every_fault_sets_the_pod_aside(talk, result) -> None:
    # garbage, silence and refusal alike
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1", result)
    assert (talk.state("u1"), talk.pod("u1").set_aside_s, talk.pod("u1").faults) == ("set-aside", 2, 1)
    assert talk.held == ["c1"]


def test_the_time_doubles_up_to_its_limit(talk) -> None:
    # an orphan that stays in its slice for ever
    talk.seen("orphan")
    lengths = []
    for n in range(7):
        lengths.append(fault(talk, f"c{n}", "orphan"))
        talk.until(talk.now + lengths[-1])
        assert talk.state("orphan") == "free"  # its slice still says ready
    assert lengths == [2, 4, 8, 16, 32, 60, 60]


def test_success_clears_the_faults(talk) -> None:
    talk.seen("u1")
    fault(talk, "c1", "u1")
    talk.until(2)
    talk.lease("c2", "u1")
    assert talk.pod("u1").faults == 0
    talk.end("c2")
    talk.said("u1", free=True)
    assert fault(talk, "c3", "u1") == 2


def test_a_slice_seen_turning_to_ready_clears_the_faults_and_ends_the_set_aside(talk) -> None:
    talk.seen("u1")
    fault(talk, "c1", "u1")
    talk.seen("u1", fresh=True)
    assert (talk.state("u1"), talk.pod("u1").faults) == ("free", 0)
    assert fault(talk, "c2", "u1") == 2


def test_a_slice_that_only_says_ready_again_ends_no_set_aside(talk) -> None:
    talk.seen("u1")
    fault(talk, "c1", "u1")
    talk.seen("u1", ready=False)
    talk.seen("u1", ready=True)  # a list after a gap
    assert talk.state("u1") == "set-aside"


def test_a_new_uid_starts_clean(talk) -> None:
    talk.seen("u1")
    fault(talk, "c1", "u1")
    talk.gone("u1")
    talk.seen("u2")  # same address
    assert fault(talk, "c2", "u2") == 2


def test_afterwards_the_slice_decides(talk) -> None:
    talk.seen("u1")
    fault(talk, "c1", "u1")
    talk.seen("u1", ready=False)
    talk.until(2)
    assert talk.state("u1") == "unready"


def test_a_fault_overtakes_the_agent_s_free_of_before(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.seen("u1", ready=False)
    talk.end("c1")
    talk.said("u1", free=True)
    fault(talk, "c2", "u1")
    talk.until(2)
    assert talk.state("u1") == "unready"


@pytest.mark.parametrize("event", ["terminating", "gone"])
def test_a_pod_set_aside_may_leave(talk, event: str) -> None:
    talk.seen("u1")
    fault(talk, "c1", "u1")
    if event == "gone":
        talk.gone("u1")
        assert talk.view.pods == []
    else:
        talk.seen("u1", terminating=True)
        assert talk.state("u1") == "unready"
    assert talk.dials(talk.until(100)) == []


def test_a_fault_of_a_terminating_pod_leaves_it_unready(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.seen("u1", terminating=True)
    talk.fail("c1")
    assert talk.state("u1") == "unready"


def test_no_doubling_while_a_third_of_the_pool_is_set_aside(talk) -> None:
    # a node goes, then a starved machine must not be taken for a dead one
    keys = [f"u{n}" for n in range(6)]
    talk.seen(*keys)
    lengths = []
    for round_ in range(2):
        ids = [f"{round_}-{n}" for n in range(6)]
        talk.arrive(*ids)  # one on each
        for id_, key in zip(ids, keys, strict=True):
            talk.fail(id_)
            talk.leave(id_)
            lengths.append(talk.pod(key).set_aside_s)
        talk.until(2)
    assert lengths == [2, 2, 2, 2, 2, 2, 4, 4, 2, 2, 2, 2]


def test_one_dead_address_among_two_still_doubles(talk) -> None:
    talk.seen("dead", "alive")
    talk.lease("c0", "dead")  # so that "alive" stands first from here on
    talk.end("c0")
    talk.lease("c1", "alive")
    talk.said("dead", free=True)
    assert fault(talk, "c2", "dead") == 2
    talk.until(2)
    assert fault(talk, "c3", "dead") == 4


def test_orphan_beside_a_real_pod_twenty_callers_succeed(talk) -> None:
    talk.seen("10.9.9.9:9222", "u1")
    tried = 0
    for n in range(20):
        commands = talk.arrive(f"c{n}")
        while talk.dials(commands) == [(f"c{n}", "10.9.9.9:9222")]:
            tried += 1
            commands = talk.fail(f"c{n}")
        assert talk.dials(commands) == [(f"c{n}", "u1")]
        talk.succeed(f"c{n}")
        talk.until(talk.now + 1)
        talk.end(f"c{n}")
        talk.said("u1", free=True)
    assert tried <= 4  # 2, 4, 8 and 16 s apart, in 20 s


def test_while_callers_wait_pods_set_aside_are_asked_each_second(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    assert talk.asks(talk.fail("c1")) == []
    assert talk.asks(talk.until(0.99)) == []
    assert talk.asks(talk.until(1)) == [("u1", 0.0)]
    assert talk.asks(talk.said("u1", free=None)) == []
    assert talk.state("u1") == "set-aside"
    assert talk.asks(talk.until(1.9)) == []
    commands = talk.until(2)
    assert talk.dials(commands) == [("c1", "u1")]  # its time is over


def test_a_pod_set_aside_returns_on_its_agent_s_word(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1")
    talk.until(1)
    assert talk.dials(talk.said("u1", free=True)) == [("c1", "u1")]
    assert talk.pod("u1").faults == 1  # only a success clears them


def test_a_pod_set_aside_that_is_busy_is_waited_for_as_any_busy_pod(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1")
    talk.until(1)
    assert talk.asks(talk.said("u1", free=False, busy=Busy.BUSY)) == [("u1", 30.0)]
    assert talk.state("u1") == "unready"


def test_pods_set_aside_are_left_alone_while_nobody_waits(talk) -> None:
    talk.seen("u1")
    fault(talk, "c1", "u1")
    assert talk.asks(talk.until(1.9)) == []


def test_pods_set_aside_are_left_alone_while_another_is_free(talk) -> None:
    talk.seen("u1", "u2")
    talk.arrive("c1")
    assert [c.pod for c in talk.fail("c1") if isinstance(c, Dial)] == ["u2"]
    talk.succeed("c1")
    assert talk.asks(talk.until(1.9)) == []


def test_the_sample_of_pods_set_aside_is_bounded_and_goes_round(new_talk) -> None:
    talk = new_talk(Limits(ask_sample=2, set_aside_s=60))
    keys = [f"u{n}" for n in range(5)]
    talk.seen(*keys)
    for _ in keys:
        talk.fail("c1") if talk.held == [] and "c1" in talk.farm._callers else talk.arrive("c1")
    talk.fail("c1")
    asked: list[str] = [pod for pod, _ in talk.asks(talk.until(1))]
    assert asked == ["u0", "u1"]
    for key in ("u0", "u1", "u2"):
        asked += [pod for pod, _ in talk.asks(talk.said(key, free=None))]
    assert asked == keys
