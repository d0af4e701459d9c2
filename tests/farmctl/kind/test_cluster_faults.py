"""A cluster of our own that does not come up, or not back: message, remedy, logs kept, nothing half made."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind import down
from farmctl.testbeds.kind.cluster import cluster, nodes
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.nodes import Node
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder

SHAPE = Shape(node_image="kindest/node:v0", workers=1)
NAMES = ("farm-control-plane", "farm-worker")


class Kind:
    """A Cluster whose nodes and API are what the test says; remembers what kind was told."""

    def __init__(self, folder, there=(), fails="", ready=NAMES):
        self.folder, self.shape, self.there = folder, SHAPE, list(there)
        self.fails, self.ready, self.told = fails, ready, []
        self.engine, self.kubectl, self.size = None, self, 2

    def nodes(self):
        return self.there

    def run_kind(self, *words, timeout_s=0):
        self.told.append(" ".join(words[:2]))
        if self.fails and words[:2] == ("create", "cluster"):
            raise StageError(self.fails)
        if words[0] == "create":
            self.there = [
                Node(name, "worker", running=True, address="10.0.0.1", fence="/state/kind/fence.conf")
                for name in NAMES
            ]
        if words[0] == "delete":
            self.there = []

    def get(self, what, *_):
        made = {"metadata": {"name": ""}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        return [{**made, "metadata": {"name": name}} for name in self.ready] if what == "nodes" else []


@pytest.fixture
def folder(tmp_path):
    return KindFolder(tmp_path)


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(cluster, "READY_S", 0)
    monkeypatch.setattr(nodes, "start_stopped", lambda *_: [])
    monkeypatch.setattr(nodes, "has_network", lambda _: True)


def standing(*names):
    return [
        Node(name, "worker", running=True, address="10.0.0.1", fence="/state/kind/fence.conf")
        for name in names
    ]


CREATING = Installed(phase="creating", shape=SHAPE)
UP = Installed(phase="up", shape=SHAPE)


def test_what_an_interrupted_run_left_is_removed_and_made_again(folder):
    kind = Kind(folder, standing("farm-control-plane"))
    there = cluster.ensure(kind, CREATING, print)
    assert kind.told == ["delete cluster", "create cluster"]
    assert there.phase == "installing"
    assert folder.read() == there


@pytest.mark.parametrize("there_before", [True, False])
def test_whose_network_it_is_is_written_down_before_the_nodes_are_made(folder, monkeypatch, there_before):
    monkeypatch.setattr(nodes, "has_network", lambda _: there_before)
    kind, recorded = Kind(folder), []
    spoken = kind.run_kind

    def run_kind(*words, timeout_s=0):
        recorded.append(folder.read().made_network)
        return spoken(*words, timeout_s=timeout_s)

    kind.run_kind = run_kind
    there = cluster.ensure(kind, CREATING, print)
    assert recorded[0] is not there_before
    assert there.made_network is not there_before
    # An interrupted run's record is believed: the network that is there now is its own.
    monkeypatch.setattr(nodes, "has_network", lambda _: True)
    kind.there = []
    assert cluster.ensure(kind, there, print).made_network is not there_before


class Networked:
    """An engine with these containers, by the networks they are on; stopped ones among them."""

    name = "docker"

    def __init__(self, on_kind=()):
        self.on_kind, self.removed = list(on_kind), []

    def run(self, *words, **_):
        if words[:2] == ("network", "rm"):
            self.removed.append(words[2])
        assert words[0] != "ps" or "-aq" in words or words[:2] == ("ps", "-a"), "stopped ones count"
        said = "\n".join(self.on_kind) if f"network={nodes.NETWORK}" in words else ""
        return subprocess.CompletedProcess(words, 0, stdout=said, stderr="")


@pytest.mark.parametrize(
    ("made", "on_it", "removed"),
    [(True, [], ["kind"]), (True, ["other-control-plane"], []), (False, [], [])],
)
def test_down_takes_only_a_network_that_it_made_and_nobody_is_on(folder, monkeypatch, made, on_it, removed):
    engine, asked = Networked(on_it), []
    monkeypatch.setattr(down.engines, "find", lambda named: asked.append(named) or engine)
    folder.write(msgspec.structs.replace(UP, engine="docker", made_network=made))
    down.take_down(folder, print)
    assert engine.removed == removed
    assert asked == ["docker"]  # and no other, which would find no nodes and call that the end


@pytest.mark.parametrize(
    ("fails", "ready", "said"),
    [
        ("could not find a log line that matches", NAMES, "log line"),
        ("", NAMES[:1], "not Ready: farm-worker"),
    ],
)
def test_cluster_that_cannot_be_made_leaves_its_logs_and_no_nodes(folder, fails, ready, said):
    kind = Kind(folder, fails=fails, ready=ready)
    with pytest.raises(StageError, match=said) as caught:
        cluster.ensure(kind, CREATING, print)
    assert kind.told == ["create cluster", "export logs", "delete cluster"]
    assert kind.there == []
    assert str(folder.logs) in caught.value.hint
    assert caught.value.exit_code == 3


def test_node_that_never_turns_ready_again_leaves_its_logs_and_the_farm(folder):
    kind = Kind(folder, standing(*NAMES), ready=NAMES[:1])
    with pytest.raises(StageError, match="not Ready: farm-worker") as caught:
        cluster.ensure(kind, UP, print)
    assert "export logs" in kind.told
    assert "delete cluster" not in kind.told
    assert str(folder.logs) in caught.value.hint


def test_cluster_that_lost_a_node_for_good_is_to_be_made_anew(folder):
    with pytest.raises(StageError, match="recreate needed: the cluster has 1 nodes of 2") as caught:
        cluster.ensure(Kind(folder, standing(NAMES[0])), UP, print)
    assert "farmctl down" in caught.value.hint


def test_logs_that_cannot_be_exported_do_not_hide_the_fault(folder):
    kind, said = Kind(folder, fails="no space left on device"), []
    spoken = kind.run_kind

    def run_kind(*words, timeout_s=0):
        if words[0] == "export":
            raise StageError("disk full")
        return spoken(*words, timeout_s=timeout_s)

    kind.run_kind = run_kind
    with pytest.raises(StageError, match="no space left on device"):
        cluster.ensure(kind, CREATING, said.append)
    assert "could not export the nodes' logs: disk full" in said


class Engine:
    name = "podman"

    def __init__(self, problem):
        self.problem = problem

    def run(self, *words, **_):
        raise StageError(f"`podman start …` failed:\n{self.problem}", hint="farmctl doctor")


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        ("rootlessport cannot expose: listen tcp 127.0.0.1:9222: bind: address already in use", "ss -ltnp"),
        ("Bind for 127.0.0.1:9222 failed: port is already allocated", "ss -ltnp"),
        ("OCI runtime error", "podman logs farm-worker"),
    ],
)
def test_node_that_does_not_start_again_says_why(problem, remedy):
    with pytest.raises(StageError, match="the node farm-worker does not start") as caught:
        nodes.start(Engine(problem), "farm-worker")
    assert problem in str(caught.value)
    assert remedy in caught.value.hint


def test_kind_s_own_files_are_not_left_by_a_run_that_made_nothing(tmp_path):
    made = KindFolder(Path(tmp_path, "kind"))
    with pytest.raises(StageError), made.held():
        raise StageError("no container engine on this machine")
    assert not made.path.exists()
