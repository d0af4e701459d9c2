"""Whole conversations taken from faults that users of such systems reported."""

import random

from farmproxy.core.commands import AskAgent, Dial
from farmproxy.core.events import CallerArrived, DialSucceeded
from farmwire.reasons import Busy, DialResult


def test_a_lease_wins_over_a_flapping_probe(talk) -> None:
    talk.seen("p1")
    talk.lease("c1", "p1")
    talk.arrive("c2")
    for second, ready in enumerate((True, False, True, False, True), start=1):
        talk.at(second)
        assert talk.dials(talk.seen("p1", ready=ready, fresh=ready)) == []
    commands = talk.end("c1")
    assert talk.dials(commands) == []  # the ready flag of before is no word about after
    assert talk.dials(talk.seen("p1")) == []
    assert talk.dials(talk.said("p1", free=True)) == [("c2", "p1")]


def test_fifty_callers_in_one_tick_on_one_pod(talk) -> None:
    talk.seen("p1")
    ids = [f"c{n}" for n in range(50)]
    assert talk.dials(talk.arrive(*ids)) == [("c0", "p1")]
    talk.at(0.3)
    talk.succeed("c0")
    talk.until(5)
    assert talk.dials(talk.seen("p1")) == []  # the slice still says ready
    assert talk.held == ids[1:]


def test_five_free_pods_keep_working_beside_forty_five_that_flap(talk) -> None:
    rng = random.Random(62)
    pods = [f"ready{n}" for n in range(5)]
    flapping = [f"new{n}" for n in range(45)]
    talk.seen(*pods)
    talk.seen(*flapping, ready=False)
    ids = [f"c{n}" for n in range(100)]
    served: list[str] = []
    running: dict[str, str] = {}

    def follow(commands) -> None:
        for id_, key in talk.dials(commands):
            assert key in pods
            served.append(id_)
            running[id_] = key
            follow(talk.succeed(id_))

    for id_ in ids:
        follow(talk.arrive(id_))
    for second in range(1, 21):
        talk.until(second)
        for key in rng.sample(flapping, 10):
            follow(talk.seen(key, ready=False, terminating=rng.random() < 0.1))
        for id_, key in list(running.items()):  # jobs take 1 s
            del running[id_]
            talk.end(id_)
            follow(talk.said(key, free=True))
    assert served == ids  # five a second, in order
    assert running == {}


def test_a_restarted_proxy_never_opens_a_second_session_on_a_busy_pod(talk) -> None:
    # three pods are leased by the old proxy and still look ready
    talk.seen("p1", "p2", "p3")
    commands = talk.arrive("c1", "c2")
    assert talk.dials(commands) == [("c1", "p1"), ("c2", "p2")]
    assert talk.dials(talk.busy("c1")) == [("c1", "p3")]
    assert talk.dials(talk.busy("c2")) == []
    assert talk.dials(talk.busy("c1")) == []
    assert talk.held == ["c1", "c2"]
    assert [talk.state(key) for key in ("p1", "p2", "p3")] == ["unready"] * 3
    talk.at(4)
    assert talk.dials(talk.said("p2", free=True)) == [("c1", "p2")]
    talk.at(5)
    assert talk.dials(talk.said("p3", free=True)) == [("c2", "p3")]


def test_first_callers_at_zero(talk) -> None:
    talk.arrive("http", "socket")
    talk.until(1)
    assert talk.farm.counts("d").demand == 2
    talk.until(25)
    assert talk.dials(talk.seen("p1")) == [("http", "p1")]
    talk.fail("http", DialResult.REFUSED)  # Chrome listens 2 s later
    assert talk.held == ["http", "socket"]
    talk.until(26)
    talk.said("p1", free=None)
    assert talk.dials(talk.until(27)) == [("http", "p1")]
    talk.succeed("http")
    talk.end("http")
    assert talk.dials(talk.said("p1", free=True)) == [("socket", "p1")]


def test_another_workload_on_a_reused_address(talk) -> None:
    talk.seen("stale", "real")
    talk.arrive("c1", "c2")
    commands = talk.fail("c1", DialResult.GARBAGE)
    assert talk.refusals(commands) == []
    talk.succeed("c2")
    talk.end("c2")
    assert talk.dials(talk.said("real", free=True)) == [("c1", "real")]


def test_a_node_that_went_without_a_word(talk) -> None:
    # slices unchanged; each free pod of the node costs one failed dial, leased ones one session
    node, others = [f"lost{n}" for n in range(4)], [f"kept{n}" for n in range(8)]
    talk.seen(*node, *others)
    talk.lease("victim", "lost0")
    talk.at(1)
    talk.end("victim")
    talk.said("lost0", free=None)
    failed = 0
    for n in range(8):
        commands = talk.arrive(f"c{n}")
        while talk.dials(commands) and talk.dials(commands)[0][1] in node:
            failed += 1
            commands = talk.fail(f"c{n}", DialResult.TIMEOUT)
        assert talk.dials(commands)[0][1] in others
        talk.succeed(f"c{n}")
    assert failed == 3
    assert talk.refusals(talk.until(60)) == []


def test_two_proxies_share_a_pod_and_the_loser_waits(new_talk) -> None:
    # two replicas: the pod itself keeps them apart
    ours, theirs = new_talk(), new_talk()
    for proxy in (ours, theirs):
        proxy.seen("p1")
    ours.lease("a1", "p1")
    assert theirs.dials(theirs.arrive("b1")) == [("b1", "p1")]
    assert theirs.asks(theirs.busy("b1")) == [("p1", 30.0)]
    ours.at(20).end("a1")
    ours.said("p1", free=True)
    theirs.at(20)
    assert theirs.dials(theirs.said("p1", free=True)) == [("b1", "p1")]
    theirs.succeed("b1")
    ours.arrive("a2")
    assert ours.asks(ours.busy("a2", Busy.BUSY)) == [("p1", 30.0)]


def test_an_even_load_on_a_flaky_farm_loses_nobody(talk) -> None:
    """Seeded chaos with honest pods: every caller is served, in order of arrival of those waiting."""
    rng = random.Random(7)
    keys = [f"p{n}" for n in range(6)]
    talk.seen(*keys)
    served: set[str] = set()
    queue = [c for n in range(60) for c in talk.arrive(f"c{n}", hold_s=10_000)]
    for _ in range(5000):
        if not queue:
            if talk.wake_at == float("inf") or len(served) == 60:
                break
            queue = talk.until(talk.wake_at)
            continue
        command = queue.pop(0)
        if isinstance(command, Dial):
            talk.at(talk.now + rng.random() / 10)
            if rng.random() < 0.3:
                queue += talk.fail(command.id, rng.choice([DialResult.TIMEOUT, DialResult.REFUSED]))
            elif rng.random() < 0.2:
                queue += talk.busy(command.id)
            else:
                served.add(command.id)
                queue += talk.succeed(command.id) + talk.end(command.id)
        elif isinstance(command, AskAgent) and talk.farm._pools["d"].pod_table.pods[command.pod].ask:
            queue += talk.said(command.pod, free=rng.choice([True, True, False, None]))
    assert len(served) == 60


def test_a_story_can_be_read_and_replayed(talk, new_talk) -> None:
    talk.seen("p1")
    talk.arrive("c1")
    talk.fail("c1")
    talk.until(2)
    talk.succeed("c1")
    lines = [line.split("(")[0] for line in talk.farm.story("c1")]
    assert lines == [
        "0.000 CallerArrived",
        "0.000 Dial",
        "0.000 DialFailed",
        "2.000 Dial",
        "2.000 DialSucceeded",
    ]
    again = new_talk()
    again.seen("p1")
    for at, what in talk.farm.story_lines("c1"):
        again.until(at)
        if not isinstance(what, Dial):
            again.tell(what)
    assert again.farm.story("c1") == talk.farm.story("c1")
    assert isinstance(talk.farm.story_lines("c1")[0][1], CallerArrived)
    assert isinstance(talk.farm.story_lines("c1")[-1][1], DialSucceeded)
    assert [line.split(" ", 1)[1] for line in talk.farm.story("p1")] == [
        "dialling: c1",
        "set-aside: fault 1, for 2 s",
        "free: its set-aside is over and the slice says ready",
        "dialling: c1",
        "leased: 101",
    ]
