"""A lease's life: its longest time, renewal, what pods and slices may do meanwhile, what demand counts."""

import pytest
from farmproxy.core.commands import AskAgent, CloseSession
from farmwire.reasons import End


def closings(commands: list) -> list[tuple[str, End]]:
    return [(c.id, c.end) for c in commands if isinstance(c, CloseSession)]


def test_a_lease_is_told_to_close_at_its_longest_time_and_once(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", max_s=60)
    talk.at(5)
    talk.succeed("c1")
    assert closings(talk.until(64.9)) == []
    assert closings(talk.until(65)) == [("c1", End.MAX)]
    assert closings(talk.until(500)) == []
    assert talk.state("u1") == "leased"  # until the driver says that it is closed
    talk.end("c1", End.MAX)
    assert talk.state("u1") == "recycling"


def test_a_renewal_counts_from_its_own_moment(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", max_s=60)
    talk.succeed("c1")
    talk.until(50)
    talk.renew("c1", 30)
    assert talk.view.leases[0].left_s == 30
    assert closings(talk.until(79)) == []
    assert closings(talk.until(80)) == [("c1", End.MAX)]


def test_an_ended_lease_s_time_is_forgotten(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", max_s=60)
    talk.succeed("c1")
    talk.end("c1")
    talk.said("u1", free=True)
    assert talk.until(100) == []


def test_neither_terminating_nor_disappearing_ends_a_lease(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    assert talk.farm.counts("d").demand == 1
    assert talk.seen("u1", terminating=True) == []
    assert talk.farm.counts("d").demand == 0  # a replacement for it is not demand
    assert talk.gone("u1") == []
    assert talk.view.pods == []
    assert [(lease.id, lease.pod) for lease in talk.view.leases] == [("c1", "pod-u1")]
    assert talk.farm.counts("d").leases == 1
    # The question how it ended is asked of a pod that is gone, too, and its answer is the last of it.
    assert talk.end("c1") == [AskAgent("d", "u1", "10.0.0.9", 9222, 0.0, "c1")]
    talk.said("u1", free=None)
    assert talk.view.leases == []
    assert talk.farm.story("u1")[-1].endswith("no slice has it and its lease has ended")


def test_a_pod_that_vanished_and_came_back_keeps_its_lease(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.gone("u1")
    talk.seen("u1")
    assert talk.state("u1") == "leased"
    assert talk.farm.counts("d").demand == 1


def test_a_terminating_pod_is_not_free_after_its_lease(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.seen("u1", terminating=True)
    talk.arrive("c2")
    talk.end("c1")
    assert talk.dials(talk.said("u1", free=True)) == []
    assert talk.state("u1") == "unready"
    assert talk.asks(talk.until(200)) == []


@pytest.mark.parametrize("free", [True, False, None])
def test_a_dial_to_a_pod_that_vanished_meanwhile(talk, free: bool | None) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    assert talk.gone("u1") == []
    if free:
        talk.succeed("c1")
        assert talk.farm.counts("d").leases == 1
    elif free is None:
        talk.fail("c1")
        assert talk.held == ["c1"]
        assert talk.view.pods == []
    else:
        talk.busy("c1")
        assert talk.held == ["c1"]
        assert talk.view.pods == []


def test_the_view_tells_ages(talk) -> None:
    talk.seen("u1")
    talk.at(1)
    talk.arrive("c1", max_s=60)
    talk.succeed("c1")
    talk.at(2)
    talk.arrive("c2", hold_s=10)
    talk.at(5)
    (lease,), (held,) = talk.view.leases, talk.view.held
    assert (lease.label, lease.age_s, lease.left_s) == ("label-c1", 4, 56)
    assert (held.label, held.waited_s, held.left_s, held.dials) == ("label-c2", 3, 7, 0)
    assert talk.pod("u1").lease == "c1"
    assert talk.pod("u1").address == "10.0.0.9:9222"
