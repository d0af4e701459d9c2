import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind.cluster import cluster, cluster_spec, network, nodes
from farmctl.testbeds.kind.cluster.nodes import Node


def inspected(
    name, *, running=True, role="worker", fence="/state/kind/fence.conf", address="10.89.0.5", paused=False
):
    ours = {"Destination": cluster_spec.FENCE_IN_NODE, "Source": str(fence)}
    mounts = [{"Destination": "/var"}, *([ours] if fence else [])]
    return {
        "Name": name,
        "State": {"Running": running, "Paused": paused},
        "Config": {"Labels": {nodes.ROLE_LABEL: role}},
        "NetworkSettings": {"Networks": {"kind": {"IPAddress": address if running else ""}}},
        "Mounts": mounts,
    }


class ScriptedEngine:
    """Remembers what it was asked; ``refuses`` names the calls that fail."""

    def __init__(self, name="podman", containers=(), refuses=()):
        self.name, self.containers, self.refuses = name, containers, refuses
        self.asked: list[tuple[str, ...]] = []

    def run(self, *words, check=True, **_):
        self.asked.append(words)
        failed = any(words[: len(each)] == each for each in self.refuses)
        if failed and check:
            raise StageError("refused")
        said = ""
        if words[0] == "ps":
            said = "\n".join(each["Name"] for each in self.containers)
        if words[:2] == ("container", "inspect"):
            said = json.dumps(self.containers)
        return subprocess.CompletedProcess(words, int(failed), stdout=said, stderr="")


def test_nodes_are_read_with_the_control_plane_first():
    engine = ScriptedEngine(
        containers=[
            inspected("farm-worker"),
            inspected("farm-control-plane", role="control-plane", address="10.89.0.4"),
            inspected("farm-worker2", running=False),
        ]
    )
    found = nodes.listed(engine, "farm")
    assert [each.name for each in found] == ["farm-control-plane", "farm-worker", "farm-worker2"]
    assert [each.address for each in found] == ["10.89.0.4", "10.89.0.5", ""]
    assert {each.fence for each in found} == {"/state/kind/fence.conf"}
    assert nodes.listed(ScriptedEngine(), "farm") == []


def test_stopped_node_comes_back_under_its_old_address():
    engine = ScriptedEngine()
    there = [Node("a", "control-plane", True, "10.89.0.4"), Node("b", "worker", False, "")]
    assert nodes.start_stopped(engine, there, {"a": "10.89.0.4", "b": "10.89.0.5"}) == ["b"]
    assert engine.asked == [
        ("network", "disconnect", "kind", "b"),
        ("network", "connect", "--ip", "10.89.0.5", "kind", "b"),
        ("start", "b"),
    ]


def test_address_that_another_has_by_now_is_given_up():
    engine = ScriptedEngine(refuses=[("network", "connect", "--ip")])
    nodes.start_stopped(engine, [Node("b", "worker", False, "")], {"b": "10.89.0.5"})
    assert engine.asked[-2:] == [("network", "connect", "kind", "b"), ("start", "b")]


@pytest.mark.parametrize(("engine", "addresses"), [("docker", {"b": "172.18.0.3"}), ("podman", {})])
def test_addresses_are_left_alone_where_they_are_not_ours_to_give(engine, addresses):
    asked = ScriptedEngine(engine)
    nodes.start_stopped(asked, [Node("b", "worker", False, "")], addresses)
    assert asked.asked == [("start", "b")]


def test_paused_node_is_thawed():
    engine = ScriptedEngine()
    assert nodes.start_stopped(engine, [Node("b", "worker", True, "10.89.0.5", paused=True)], {}) == ["b"]
    assert engine.asked == [("unpause", "b")]


def test_cluster_of_the_same_name_that_is_not_ours_is_refused():
    foreign = nodes.node(inspected("farm-worker", fence=""))
    with pytest.raises(StageError, match="did not make") as caught:
        nodes.refuse_foreign("farm", [foreign], Path("/state/kind/fence.conf"))
    assert "--name" in caught.value.hint


def test_cluster_of_another_farm_of_ours_is_refused_while_its_state_is_there(tmp_path):
    others = tmp_path / "others" / "kind" / "fence.conf"
    there = [nodes.node(inspected("farm-worker", fence=others))]
    mine = tmp_path / "mine" / "kind" / "fence.conf"
    nodes.refuse_foreign("farm", there, mine)  # its state is lost: nobody's
    others.parent.mkdir(parents=True)
    others.touch()
    with pytest.raises(StageError, match="others") as caught:
        nodes.refuse_foreign("farm", there, mine)
    assert f"FARMCTL_STATE={tmp_path / 'others'}" in caught.value.hint
    (tmp_path / "link").symlink_to(tmp_path / "others")
    nodes.refuse_foreign("farm", there, tmp_path / "link" / "kind" / "fence.conf")


RANGES = {"a": "10.244.0.0/24", "b": "10.244.1.0/24", "c": "10.244.2.0/24"}


def test_routes_lead_to_every_node_that_runs():
    there = [
        Node("a", "control-plane", True, "10.89.0.4"),
        Node("b", "worker", True, "10.89.0.5"),
        Node("c", "worker", False, ""),
    ]
    script = network.script(there[0], there, RANGES)
    assert "ip route replace 10.244.1.0/24 via 10.89.0.5 dev eth0" in script
    assert "10.244.2.0/24" not in script  # it is away: the fence's unreachable route answers for it
    assert script.count("10.244.0.0/24") == 1  # only in its own CNI file


def test_conflist_is_a_bridge_with_host_ports():
    made = json.loads(network.conflist("10.244.1.0/24"))
    assert [each["type"] for each in made["plugins"]] == ["bridge", "portmap"]
    bridge = made["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24"}]]
    assert bridge["isGateway"]
    assert bridge["hairpinMode"]


def test_old_word_of_a_node_does_not_count():
    since = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
    leases = [
        {"metadata": {"name": "a"}, "spec": {"renewTime": "2026-11-30T10:00:01.5Z"}},
        {"metadata": {"name": "b"}, "spec": {"renewTime": "2026-11-30T09:59:59.000000Z"}},
        {"metadata": {"name": "c"}, "spec": {}},
    ]
    assert cluster.heard(leases, since) == {"a"}
