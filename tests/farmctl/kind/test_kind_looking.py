import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind import status
from farmctl.testbeds.kind.api.objects import ApiAway
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder

POD = {
    "metadata": {"name": "b-1", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"nodeName": "w-1"},
    "status": {"phase": "Running", "podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]},
}


def a_slice(name, *endpoints, managed=True):
    labels = {status.MANAGER_LABEL: status.CONTROLLER} if managed else {}
    return {"metadata": {"name": name, "labels": labels}, "endpoints": list(endpoints)}


def endpoint(address, uid="", ready=True):
    made = {"addresses": [address], "conditions": {} if ready is None else {"ready": ready}}
    return {**made, "targetRef": {"uid": uid}} if uid else made


class Cluster:
    """kubectl before a cluster that answers as the test says."""

    kubeconfig, context = "/k", "theirs"

    def __init__(self, **answers):
        self.answers = answers

    def get(self, *words):
        said = self.answers.get(words[0].partition(".")[0], [])
        if isinstance(said, str):
            raise StageError(f"`kubectl get …` failed:\n{said}")
        return said


def asked(cluster):
    return status._Asked(cluster, "farm", named="kubectl -n farm", repair="farmctl up repairs it")


def test_strays_are_ready_endpoints_of_no_pod():
    slices = [
        a_slice(
            "own",
            endpoint("10.0.0.9", "u1"),
            endpoint("10.0.0.8", "u0"),
            endpoint("10.0.0.7", "u2", ready=False),
        ),
        a_slice("by-hand", endpoint("10.9.9.9", ready=None), endpoint("10.0.0.9"), managed=False),
    ]
    assert [(one.address, one.slice, one.managed) for one in status.strays([POD], slices)] == [
        ("10.0.0.8", "own", True),
        ("10.9.9.9", "by-hand", False),
    ]


async def test_api_server_s_refusal_is_not_its_absence():
    refused = 'Error from server (Forbidden): pods is forbidden: User "weak" cannot list resource "pods"'
    with pytest.raises(StageError, match="refuses: Error from server") as caught:
        await asked(Cluster(pods=refused)).told()
    assert not isinstance(caught.value, ApiAway)
    assert "kubectl -n farm auth can-i --list" in caught.value.hint
    with pytest.raises(ApiAway, match="does not answer: The connection to the server"):
        await asked(Cluster(pods="The connection to the server 127.0.0.1:1 was refused")).told()


async def test_nodes_that_are_not_ours_to_see_are_none():
    cluster = asked(Cluster(pods=[POD], nodes="Error from server (Forbidden): nodes is forbidden"))
    assert await cluster.nodes_ready() == {}
    assert [pod.name for pod in (await cluster.told()).pods] == ["b-1"]


async def test_stopped_nodes_are_told_by_the_engine_while_the_api_server_is_away(monkeypatch):
    monkeypatch.setattr(
        status, "_running", lambda _engine, _cluster: {"farm-worker": False, "farm-control-plane": True}
    )
    look = status.OwnLook(Cluster(nodes="refused"), Installed(phase="up"), Shape(node_image="x"))
    assert [(node.name, node.running, node.ready) for node in await look.nodes()] == [
        ("farm-control-plane", True, None),
        ("farm-worker", False, None),
    ]


def test_door_of_an_existing_cluster_is_said_to_be_inside_it():
    look = status.InstalledLook(Cluster(), Installed(phase="up", context="theirs", namespace="second"))
    assert "kubectl --context theirs -n second port-forward service/proxy 9222" in look.door
    assert "127.0.0.1" not in look.door


def test_farm_that_was_never_whole_is_said_to_be_half_made(tmp_path):
    folder = KindFolder(tmp_path)
    folder.write(Installed(phase="creating", shape=Shape(node_image="x")))
    with pytest.raises(StageError, match="half made") as caught:
        status.look(folder)
    assert "run it again" in caught.value.hint
