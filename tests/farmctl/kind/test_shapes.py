import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from farmctl.errors import StageError
from farmctl.images import catalogue
from farmctl.testbeds.kind.cluster import cluster_spec
from farmctl.testbeds.kind.cluster.cluster_spec import Shape

IMAGE = "docker.io/kindest/node:v1.34.4-farm-abc"
FENCE = Path("/state/kind/kubelet-fence.conf")


def rendered(**changes) -> dict:
    return yaml.safe_load(cluster_spec.render(Shape(node_image=IMAGE, **changes), FENCE))


def test_workers_are_spot_and_the_control_plane_publishes_the_door():
    made = rendered()
    roles = [node["role"] for node in made["nodes"]]
    assert roles == ["control-plane", "worker", "worker"]
    plane, *workers = made["nodes"]
    ports = [
        (each["listenAddress"], each["hostPort"], each["containerPort"])
        for each in plane["extraPortMappings"]
    ]
    assert ports == [("127.0.0.1", 9222, 30922), ("127.0.0.1", 9223, 30923)]
    assert plane["labels"] == {"farm.pool": "stable"}
    for worker in workers:
        assert worker["labels"] == {"farm.pool": "spot"}
        (patch,) = worker["kubeadmConfigPatches"]
        (taint,) = yaml.safe_load(patch)["nodeRegistration"]["taints"]
        assert taint == {"key": "farm.pool", "value": "spot", "effect": "NoSchedule"}


def test_kubeadm_settings_are_in_the_form_that_kind_puts_into_either_of_kubeadms():
    """From 1.36 on kubeadm wants arguments as a list: kind makes it of a map in a patch that names no version."""
    patches = [*rendered()["kubeadmConfigPatches"], *rendered()["nodes"][1]["kubeadmConfigPatches"]]
    parsed = [yaml.safe_load(each) for each in patches]
    assert all("apiVersion" not in each for each in parsed)
    assert isinstance(parsed[0]["controllerManager"]["extraArgs"], dict)
    major, minor = (int(each) for each in catalogue.read().versions["kind"].lstrip("v").split(".")[:2])
    assert (major, minor) >= (0, 33)  # older ones lay the map over the list


def test_every_node_mounts_the_fence():
    for node in rendered()["nodes"]:
        assert node["extraMounts"] == [
            {"hostPath": str(FENCE), "containerPath": cluster_spec.FENCE_IN_NODE, "readOnly": True}
        ]


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_one_node_profile_and_larger_ones(workers):
    assert len(rendered(workers=workers)["nodes"]) == workers + 1


def test_own_network_and_restricted_machines():
    assert rendered()["networking"]["disableDefaultCNI"] is False
    assert "featureGates" not in rendered()
    made = rendered(own_network=True, restricted=True)
    assert made["networking"]["disableDefaultCNI"] is True
    assert made["featureGates"] == {"KubeletInUserNamespace": True}
    assert "restrict_oom_score_adj = true" in made["containerdConfigPatches"][0]


def test_node_ports_are_those_of_the_overlay():
    # the mapped container port must equal the NodePort
    services = yaml.safe_load_all(
        (cluster_spec.TEMPLATE.parent.parent / "overlays/kind/node-ports.yaml").read_text()
    )
    published = {port["nodePort"] for service in services for port in service["spec"]["ports"]}
    mapped = {each["containerPort"] for each in rendered()["nodes"][0]["extraPortMappings"]}
    assert published == mapped


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workers": 1}, "workers 2 -> 1"),
        ({"door_port": 9322}, "door 127.0.0.1:9222 -> 127.0.0.1:9322"),
        ({"node_image": "docker.io/kindest/node:v1.35.0"}, "node image"),
    ],
)
def test_changed_setting_says_recreate_needed(change, said):
    there = Shape(node_image=IMAGE)
    wanted = Shape(**{"node_image": IMAGE, **change})
    with pytest.raises(StageError, match="recreate needed") as caught:
        cluster_spec.refuse_differences(there, wanted)
    assert said in str(caught.value)
    assert "farmctl down" in caught.value.hint
    cluster_spec.refuse_differences(there, there)


def fence_script():
    """What systemd would run: lines joined, the quoted argument of sh taken out of its quotes."""
    (line,) = re.findall(r"^ExecStartPre=(?:.*\\\n)*.*", cluster_spec.render_fence(), flags=re.MULTILINE)
    found = re.fullmatch(r"ExecStartPre=-/bin/sh -uc '([^']*)'", line.replace("\\\n", " "))
    assert found, "a leading - : no kubelet is kept from starting by this"
    return found[1]


def fenced(folder, **works):
    """Run the fence on a machine whose iptables, nft and ip keep rules in a file, or fail."""
    for name in ("iptables", "nft", "ip"):
        keeps = f'case "$*" in *" -C "*) set -- $(echo "$*" | sed "s/ -C / -A /"); grep -qxF -e "$*" {folder}/rules;; '
        keeps += f'*) echo "$*" >> {folder}/rules;; esac'
        (folder / name).write_text(f"#!/bin/sh\n{keeps if works.get(name, True) else 'exit 3'}\n")
        (folder / name).chmod(0o755)
    (folder / "rules").touch()
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", "-uc", fence_script()], env=env, capture_output=True, text=True, check=False
    )
    return done.stderr, (folder / "rules").read_text().splitlines()


def test_fence_names_the_ranges_and_can_be_put_up_twice(tmp_path):
    text = cluster_spec.render_fence()
    assert "_RANGE" not in text
    # systemd expands $ itself unless it is doubled or stands in single quotes that it keeps, and % always: none here.
    assert "${" not in text
    assert "%" not in text
    said, first = fenced(tmp_path)
    assert (said, len(first)) == ("", 5)
    assert all("10.96.0.0/16" in rule for rule in first[:4])
    assert first[4] == "route replace unreachable 10.244.0.0/16"
    assert fenced(tmp_path)[1][5:] == [first[4]]  # every other rule was there


def test_nft_puts_the_fence_up_where_iptables_cannot(tmp_path):
    said, rules = fenced(tmp_path, iptables=False)
    assert said == ""
    assert sum(rule.count("10.96.0.0/16") for rule in rules) == 4


@pytest.mark.parametrize(
    ("broken", "told"),
    [({"iptables": False, "nft": False}, "10.96.0.0/16"), ({"ip": False}, "10.244.0.0/16")],
)
def test_a_kubelet_starts_without_a_fence_and_its_journal_says_so(tmp_path, broken, told):
    said, _ = fenced(tmp_path, **broken)
    assert f"{told} may leave this machine" in said


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft: rules in a network of their own"
)
def test_the_rules_for_nft_are_ones_that_it_takes_twice_and_that_refuse_connections(tmp_path):
    (tmp_path / "iptables").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "iptables").chmod(0o755)
    (tmp_path / "fence").write_text(fence_script())
    connect = "import socket; s = socket.socket(); s.settimeout(5); s.connect(('10.96.0.1', 443))"
    script = f"""
        ip link set lo up && ip link add out0 type veth peer name far0
        ip address add 192.0.2.1/24 dev out0; ip link set far0 up; ip link set out0 up
        ip route add default via 192.0.2.2
        PATH={tmp_path}:$PATH
        sh -uc "$(cat {tmp_path}/fence)" && sh -uc "$(cat {tmp_path}/fence)"
        nft list table ip farm-fence; ip route
        {sys.executable} -c "{connect}"
    """
    done = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("no network name space here")
    assert done.stdout.count("10.96.0.0/16") == 4
    assert "unreachable 10.244.0.0/16" in done.stdout
    assert "ConnectionRefusedError" in done.stderr
