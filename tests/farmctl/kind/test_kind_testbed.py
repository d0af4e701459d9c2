from pathlib import Path

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.base import NoFarm, NotStaged, Scaling
from farmctl.testbeds.kind.api.objects import ApiAway
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.containers import Container
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.testbed import KindTestbed, Opened

NODES = ("farm-control-plane", "farm-worker", "farm-worker2")


def raw_pod(name, node="farm-worker"):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": "Running",
            "podIP": "10.244.1.4",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class FakeApi:
    def __init__(self, *pods):
        self.there, self.away, self.deleted = list(pods), False, []

    async def pods(self, _selector=""):
        if self.away:
            raise ApiAway("the API server does not answer")
        return list(self.there)

    async def delete_pod(self, name, uid, *, grace_s=None):
        await self.pods()
        self.deleted.append((name, uid, grace_s))
        if grace_s == 0:
            self.there = [raw for raw in self.there if raw["metadata"]["uid"] != uid]


class FakeContainers:
    """One container a pod, each killed one started again by the kubelet when ``again``."""

    def __init__(self, again=False):
        self.again, self.killed, self.scripts = again, [], []

    async def run(self, node, script):
        self.scripts.append(node)
        return ""

    async def kill(self, place):
        self.killed.append(place.uid)

    async def listed(self, node):
        found = []
        for uid in ("uid-a", "uid-b"):
            dead = uid in self.killed
            found.append(Container(f"{uid}-0", uid, running=not dead, attempt=0))
            if dead and self.again:
                found.append(Container(f"{uid}-1", uid, running=True, attempt=1))
        return found


def opened_testbed(tmp_path, *pods, workers=2, again=False):
    shape = Shape(node_image="kindest/node:v0", workers=workers)
    folder = KindFolder(tmp_path)
    installed = folder.write(Installed(phase="up", shape=shape))
    cluster = Cluster(None, Path("kind"), Kubectl(Path("kubectl")), folder, shape)
    made = KindTestbed(Opened(folder, installed, cluster, NODES[: workers + 1], "10.89.0.1"))
    made._api, made._containers = FakeApi(*pods), FakeContainers(again)
    made._witnesses._containers = made._containers
    return made


async def test_kill_ends_the_processes_then_the_object_and_keeps_the_log_first(tmp_path):
    made = opened_testbed(tmp_path, raw_pod("a"), raw_pod("b"))
    await made.kill("a")
    assert made._containers.scripts == ["farm-worker"]
    assert made._containers.killed == ["uid-a"]
    assert made._api.deleted == [("a", "uid-a", 0)]
    assert made._faults.read().told == ["kill a"]
    assert [pod.name for pod in await made.pods()] == ["b"]


@pytest.mark.parametrize(("grace_s", "given"), [(0.2, 1.0), (30.0, 30.0)])
async def test_a_graceful_kill_is_never_a_forced_one(tmp_path, grace_s, given):
    made = opened_testbed(tmp_path, raw_pod("a"))
    await made.kill("a", grace_s=grace_s)
    assert made._api.deleted == [("a", "uid-a", given)]
    assert made._containers.killed == []


@pytest.mark.parametrize(("again", "phase", "restarts"), [(False, "Failed", 0), (True, "Running", 1)])
async def test_without_the_api_server_the_nodes_tell(tmp_path, again, phase, restarts):
    made = opened_testbed(tmp_path, raw_pod("a"), raw_pod("b"), again=again)
    await made.pods()
    made._api.away = True
    await made.kill("a")
    found = {pod.name: pod for pod in await made.pods()}
    assert (found["a"].phase, found["a"].restarts) == (phase, restarts)
    assert (found["b"].phase, found["b"].restarts) == ("Running", 0)


async def test_an_api_server_that_was_never_heard_is_an_error(tmp_path):
    made = opened_testbed(tmp_path)
    made._api.away = True
    with pytest.raises(ApiAway):
        await made.pods()


async def test_what_cannot_be_staged_says_so(tmp_path):
    made = opened_testbed(tmp_path, raw_pod("a"), raw_pod("waiting", node=""), workers=0)
    assert set(made.cannot) == {"cut_off", "reclaim_node"}
    with pytest.raises(NotStaged, match="one node"):
        await made.cut_off("a")
    with pytest.raises(StageError, match="no spot node"):
        await made.reclaim_node("farm-control-plane", notice_s=0)
    with pytest.raises(StageError, match="no pod 'nobody'"):
        await made.kill("nobody")
    with pytest.raises(NotStaged, match="no node yet"):
        await made.freeze("waiting")
    with pytest.raises(StageError, match="autoscaler"):
        await made.resize(4, Scaling(1, 8))


async def test_connecting_needs_a_farm_on_a_cluster_of_our_own(tmp_path):
    folder = KindFolder(tmp_path / "kind")
    with pytest.raises(NoFarm):
        await KindTestbed.connect(folder)
    folder.write(Installed(phase="up", context="prod"))
    with pytest.raises(StageError, match="not ours to break"):
        await KindTestbed.connect(folder)
