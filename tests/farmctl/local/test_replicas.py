"""Which pods a scale-down takes: the order of the real ReplicaSet controller, measured on one."""

import random

import pytest

from farmctl.testbeds.local.control_plane.replicas import Candidate, missing, node_for, victims

NOW = 10_000.0


def pod(name, *, ready_s=100.0, age_s=200.0, node="node-a", pending=False, restarts=0, cost=0):
    since = None if ready_s is None else NOW - ready_s
    return Candidate(name, f"uid-{name}", node, pending, since, restarts, NOW - age_s, cost)


def order(*pods):
    shuffled = list(pods)
    random.Random(4).shuffle(shuffled)
    return [one.name for one in victims(shuffled, 0, NOW)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("a", pending=True, ready_s=None), pod("b", ready_s=None)),
        (pod("a", ready_s=None), pod("b")),
        (pod("a", ready_s=None, cost=1000), pod("b", cost=0)),  # readiness ranks before cost
        (pod("a", cost=0), pod("b", cost=1000)),
        (pod("a", ready_s=2), pod("b", ready_s=900)),
        (pod("a", restarts=3), pod("b")),
        (pod("a", age_s=101), pod("b", age_s=900)),
    ],
)
def test_order_between_two(first, second):
    second = Candidate(**{**{f: getattr(second, f) for f in Candidate.__slots__}, "node": "node-b"})
    assert order(first, second) == ["a", "b"]


def test_busy_pods_are_deleted_first():
    # Measured: scale 6 to 3 with the older three not ready deletes just those three.
    old = [pod(f"old{i}", ready_s=None, age_s=900) for i in range(3)]
    young = [pod(f"young{i}", ready_s=50, age_s=60) for i in range(3)]
    assert {one.name for one in victims(old + young, 3, NOW)} == {"old0", "old1", "old2"}


def test_younger_are_deleted_first_when_all_are_ready():
    old = [pod(f"old{i}", ready_s=900, age_s=910) for i in range(3)]
    young = [pod(f"young{i}", ready_s=50, age_s=60) for i in range(3)]
    assert {one.name for one in victims(old + young, 3, NOW)} == {"young0", "young1", "young2"}


def test_fuller_node_gives_first():
    pods = [pod("a", node="node-a"), pod("b", node="node-b"), pod("c", node="node-b")]
    assert victims(pods, 2, NOW)[0].name in {"b", "c"}


def test_counts():
    assert missing(4, 1) == 3
    assert missing(1, 4) == 0
    assert victims([pod("a")], 1, NOW) == []
    assert victims([pod("a")], 2, NOW) == []


def test_nodes_alternate_and_a_cordoned_one_gets_none():
    nodes = ("node-a", "node-b")
    assert node_for(nodes, [], frozenset()) == "node-a"
    assert node_for(nodes, ["node-a"], frozenset()) == "node-b"
    assert node_for(nodes, ["node-b", "node-b"], frozenset({"node-a"})) == "node-b"
    assert node_for(nodes, [], frozenset(nodes)) is None
