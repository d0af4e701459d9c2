import asyncio
import shutil
import subprocess

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.cluster import containers, gateways
from farmctl.testbeds.kind.cluster.containers import Containers, Place
from farmctl.testbeds.kind.faults import controlplane
from farmctl.testbeds.kind.faults.controlplane import ControlPlane

CRICTL = {
    "containers": [
        {
            "id": "c1",
            "state": "CONTAINER_EXITED",
            "metadata": {},
            "labels": {"io.kubernetes.pod.uid": "uid-1"},
        },
        {
            "id": "c2",
            "state": "CONTAINER_RUNNING",
            "metadata": {"attempt": 1},
            "labels": {"io.kubernetes.pod.uid": "uid-1"},
        },
        {"id": "c3", "state": "CONTAINER_RUNNING", "metadata": {"attempt": 0}, "labels": {}},
    ]
}
EVERY_SCRIPT = {
    "kill": containers.kill_script("c1 c2"),
    "stop chrome": containers.stop_chrome_script("c1"),
    "kill chrome": containers.kill_chrome_script("c1"),
    "thaw": containers.thaw_script("c1"),
    "mend": containers.MENDING,
    "cut api": controlplane.CUT,
    "mend api": controlplane.MEND,
    "late": controlplane.late_script(3.0),
    "not late": controlplane.late_script(0.0),
}
MANIFEST = """spec:
  containers:
  - command:
    - kube-controller-manager
    - --bind-address=127.0.0.1
    image: registry.k8s.io/kube-controller-manager:v1.34.4
"""


class FakeShell(Containers):
    """``fails``: how often the way into the node fails before it does not."""

    def __init__(self, said="", fails=0):
        self.said, self.fails, self.scripts = said, fails, []

    async def run(self, node, script):
        self.scripts.append((node, script))
        self.fails -= 1
        if self.fails >= 0:
            raise StageError("exit code 1")
        return self.said


@pytest.mark.parametrize("name", EVERY_SCRIPT)
def test_scripts_are_shell(name):
    checked = subprocess.run(
        ["sh", "-n"], input=EVERY_SCRIPT[name], text=True, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_containers_are_read_as_crictl_tells():
    found = containers.parsed(CRICTL)
    assert [(each.id, each.pod_uid, each.running, each.attempt) for each in found] == [
        ("c1", "uid-1", False, 0),
        ("c2", "uid-1", True, 1),
        ("c3", "", True, 0),
    ]


async def test_a_fault_that_does_not_happen_is_not_staged():
    shell = FakeShell(said='{"containers": []}')
    with pytest.raises(NotStaged, match="no container of the pod runs"):
        await shell.freeze(Place("farm-worker", "uid-1"), "pod")
    with pytest.raises(NotStaged, match="no address"):
        await shell.cut_off(Place("farm-worker", "uid-1"))
    with pytest.raises(NotStaged, match="cannot be dropped"):
        await FakeShell(fails=1).cut_off(Place("farm-worker", "uid-1", "10.244.1.4"))


async def test_packets_are_dropped_both_ways_and_every_rule_carries_the_mark():
    shell = FakeShell()
    await shell.cut_off(Place("farm-worker", "uid-1", "10.244.1.4"))
    [(node, script)] = shell.scripts
    rules = script.splitlines()
    assert node == "farm-worker"
    assert [" -s " in rule for rule in rules] == [True, False]
    assert all(containers.MARK in rule and "10.244.1.4" in rule for rule in rules)
    assert containers.MARK in controlplane.RULE


def late(tmp_path, manifest, delay_s):
    path = tmp_path / "kube-controller-manager.yaml"
    path.write_text(manifest)
    script = controlplane.late_script(delay_s).replace(controlplane.MANIFEST, str(path))
    script = script.replace("new=/etc/kubernetes/", f"new={tmp_path}/")
    said = subprocess.run(["sh", "-euc", script], text=True, capture_output=True, check=True).stdout
    return said.strip(), path.read_text()


@pytest.mark.skipif(not shutil.which("sed"), reason="the script needs sed")
def test_slices_late_is_one_flag_put_in_once_and_taken_out_again(tmp_path):
    said, with_flag = late(tmp_path, MANIFEST, 3.0)
    assert said == "changed"
    assert with_flag.splitlines()[4] == f"    - {controlplane.FLAG}=3s"
    assert late(tmp_path, with_flag, 3.0)[0] == "same"
    assert late(tmp_path, with_flag, 1.5)[1].count(controlplane.FLAG) == 1
    assert late(tmp_path, with_flag, 0.0) == ("changed", MANIFEST)
    assert late(tmp_path, MANIFEST, 0.0) == ("same", MANIFEST)


@pytest.mark.parametrize(
    ("line", "wanted", "runs"),
    [
        ("", "", False),  # between two starts there is none
        (f"kcm {controlplane.FLAG}=3s", f"{controlplane.FLAG}=3s", True),
        (f"kcm {controlplane.FLAG}=3s", "", False),
        ("kcm --bind-address=127.0.0.1", "", True),
        ("kcm --bind-address=127.0.0.1", f"{controlplane.FLAG}=3s", False),
    ],
)
def test_the_controllers_run_with_the_setting(line, wanted, runs):
    assert controlplane.running_with(line, wanted) is runs


class FakeApi:
    def __init__(self, answers):
        self.answers = answers

    async def ready(self):
        await asyncio.sleep(0)
        return self.answers.pop(0)


async def test_an_api_server_that_still_answers_was_not_stopped(monkeypatch):
    monkeypatch.setattr(controlplane, "AGAIN_S", 0.0)
    with pytest.raises(NotStaged, match="still answers"):
        await ControlPlane(FakeShell(), "farm-control-plane", FakeApi([True])).stop_api()
    with pytest.raises(NotStaged, match="do not end"):
        await ControlPlane(FakeShell(fails=1), "farm-control-plane", FakeApi([])).stop_api()
    await ControlPlane(FakeShell(), "farm-control-plane", FakeApi([False])).stop_api()


async def test_a_way_into_the_node_that_fails_once_does_not_decide_about_the_stage():
    shell = FakeShell(fails=1)
    await ControlPlane(shell, "farm-control-plane", FakeApi([True, False])).stop_api()
    assert [script for _, script in shell.scripts] == [
        controlplane.CUT
    ] * 3  # failed, still answered, cut off
    shell = FakeShell(fails=1)
    await ControlPlane(shell, "farm-control-plane", FakeApi([True])).start_api()
    assert [script for _, script in shell.scripts] == [controlplane.MEND] * 2


class Nodes:
    """``looks``: how often a node is asked for before its kubelet, left alone, says that it is ready."""

    def __init__(self, looks, shell):
        self.looks, self.shell = looks, shell

    async def nodes(self):
        self.looks -= 1
        ready = self.looks < 0 or ("farm-worker", controlplane.FORGET) in self.shell.scripts
        return [
            {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]}}
            for name, status in (
                ("farm-control-plane", "True"),
                ("farm-worker", "True" if ready else "Unknown"),
            )
        ]


@pytest.mark.parametrize(("looks", "restarted"), [(0, []), (10**6, ["farm-worker"])])
async def test_a_node_that_counts_as_lost_after_an_outage_is_made_to_tell_its_state(
    monkeypatch, looks, restarted
):
    monkeypatch.setattr(controlplane, "HEARD_S", 0.05)
    shell = FakeShell(fails=1)
    await ControlPlane(shell, "farm-control-plane", Nodes(looks, shell)).until_nodes_ready()
    assert sorted({node for node, _ in shell.scripts}) == restarted


@pytest.mark.parametrize(("answers", "restarted"), [([True], False), ([False, True], True)])
async def test_a_kubelet_that_waits_before_it_starts_the_api_server_again_is_made_to_forget(
    monkeypatch, answers, restarted
):
    monkeypatch.setattr(controlplane, "PATIENCE_S", 0.05)
    shell = FakeShell()
    await ControlPlane(shell, "farm-control-plane", FakeApi(answers)).start_api()
    assert [script for _, script in shell.scripts] == [controlplane.MEND, controlplane.FORGET][
        : 1 + restarted
    ]


def test_the_control_planes_health_is_asked_of_it_and_no_proxy():
    # A node has the proxy of the machine in its environment; what is asked there is its own loopback.
    assert controlplane.HEALTH.count("curl ") == controlplane.HEALTH.count("--noproxy '*'") == 2


@pytest.mark.parametrize(
    ("inspected", "address"),
    [
        (
            [{"subnets": [{"subnet": "fc00::/64", "gateway": "fc00::1"}, {"gateway": "10.89.0.1"}]}],
            "10.89.0.1",
        ),
        ([{"IPAM": {"Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]}}], "172.18.0.1"),
        ([{"IPAM": {"Config": [{"Subnet": "fc00::/64"}]}}], ""),
        ([{"IPAM": None}], ""),
        ([], ""),
    ],
)
def test_the_hosts_address_is_the_nodes_gateway(inspected, address):
    assert gateways.address(inspected) == address
