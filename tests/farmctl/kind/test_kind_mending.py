"""What a scenario that was killed midway left is undone by the next `up`, and by nothing else."""

from pathlib import Path

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind import leftovers, testbed
from farmctl.testbeds.kind.api.objects import BROWSERS
from farmctl.testbeds.kind.cluster import nodes
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.containers import MENDING
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.faults.deployments import Deployments
from farmctl.testbeds.kind.faults.records import FaultsFile
from farmctl.testbeds.kind.faults.spot import Spot

NODES = [
    nodes.Node("farm-control-plane", "control-plane", running=True, address="10.89.0.2"),
    nodes.Node("farm-worker", "worker", running=False, address=""),
    nodes.Node("farm-worker2", "worker", running=True, address="10.89.0.4"),
]


@pytest.fixture
def running(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "listed", lambda _engine, _cluster: NODES)
    return Cluster(
        None, Path("kind"), Kubectl(Path("kubectl")), KindFolder(tmp_path), Shape("kindest/node:v0")
    )


@pytest.fixture
def shells(monkeypatch):
    scripts = []
    monkeypatch.setattr(nodes, "sh", lambda _engine, name, script: scripts.append((name, script)))
    return scripts


def test_without_a_record_nothing_is_touched(running, shells, tmp_path):
    said = []
    leftovers.mend_nodes(running, said.append)
    leftovers.undo(running, Installed(phase="up", shape=running.shape), said.append)
    assert (shells, said) == ([], [])


def test_nodes_that_run_are_mended_and_the_reader_is_told_why(running, shells, tmp_path):
    FaultsFile(tmp_path).tell("API server cut off")
    said = []
    leftovers.mend_nodes(running, said.append)
    assert shells == [("farm-control-plane", MENDING), ("farm-worker2", MENDING)]
    assert "API server cut off" in said[0]
    assert FaultsFile(tmp_path).read().told  # the API's part is still to come


class FakeWhole:
    def __init__(self, fails):
        self.fails, self.asked = fails, []

    async def undo(self, node_names, pods):
        if self.fails:
            raise StageError("the draining proxy ends")
        self.asked.append((node_names, pods))


@pytest.mark.parametrize("fails", [False, True])
def test_the_record_goes_only_when_all_is_undone(running, tmp_path, monkeypatch, fails):
    whole = FakeWhole(fails)
    monkeypatch.setattr(testbed.KindTestbed, "_whole", lambda _self: whole)
    FaultsFile(tmp_path).tell("scaled to 2")
    there = running.folder.write(Installed(phase="up", shape=running.shape, pods=3))
    if fails:
        with pytest.raises(StageError):
            leftovers.undo(running, there, print)
        assert FaultsFile(tmp_path).read().told
        return
    leftovers.undo(running, there, print)
    assert whole.asked == [([each.name for each in NODES], 3)]
    assert not FaultsFile(tmp_path).read().told


class FakeDeployment:
    """The strategy of one Deployment, and how often it was written."""

    def __init__(self, unavailable):
        self.rolling, self.patches = {"maxSurge": "25%", "maxUnavailable": unavailable}, 0

    async def deployment(self, name):
        assert name == BROWSERS
        return {"spec": {"strategy": {"rollingUpdate": self.rolling}}}

    async def patch_deployment(self, _name, body):
        self.patches += 1
        self.rolling |= body["spec"]["strategy"]["rollingUpdate"]


@pytest.mark.parametrize(("left", "patches"), [(3, 1), ("25%", 0)])
async def test_a_broken_off_rollout_leaves_no_strategy_of_its_own(tmp_path, left, patches):
    api = FakeDeployment(left)
    await Deployments(api, None, FaultsFile(tmp_path)).usual_strategy()
    assert (api.rolling, api.patches) == ({"maxSurge": "25%", "maxUnavailable": "25%"}, patches)


async def test_a_lost_node_says_no_farewell(running, shells, tmp_path, monkeypatch):
    killed = []

    class Engine:
        def run(self, *words):
            killed.append((words, list(shells)))

    monkeypatch.setattr(nodes, "listed", lambda _engine, _cluster: [])
    lost = Cluster(Engine(), running.kind, running.kubectl, running.folder, running.shape)
    await Spot(None, running.folder, lost).lose("farm-worker")
    [(words, before)] = killed
    assert words == ("kill", "farm-worker")
    assert [name for name, script in before if "OUTPUT -j DROP" in script] == ["farm-worker"]
