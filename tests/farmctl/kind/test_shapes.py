from pathlib import Path

import pytest
import yaml

from farmctl.errors import StageError
from farmctl.testbeds.kind import shapes
from farmctl.testbeds.kind.shapes import Shape

IMAGE = "docker.io/kindest/node:v1.34.4-farm-abc"
FENCE = Path("/state/kind/kubelet-fence.conf")


def rendered(**changes) -> dict:
    return yaml.safe_load(shapes.render(Shape(node_image=IMAGE, **changes), FENCE))


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


def test_every_node_mounts_the_fence():
    for node in rendered()["nodes"]:
        assert node["extraMounts"] == [
            {"hostPath": str(FENCE), "containerPath": shapes.FENCE_IN_NODE, "readOnly": True}
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
    # field case 37: the mapped container port must equal the NodePort
    services = yaml.safe_load_all(
        (shapes.TEMPLATE.parent.parent / "overlays/kind/node-ports.yaml").read_text()
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
def test_changed_setting_says_recreate_needed(change, said):  # field case 37
    there = Shape(node_image=IMAGE)
    wanted = Shape(**{"node_image": IMAGE, **change})
    with pytest.raises(StageError, match="recreate needed") as caught:
        shapes.refuse_differences(there, wanted)
    assert said in str(caught.value)
    assert "farmctl down" in caught.value.hint
    shapes.refuse_differences(there, there)


def test_fence_names_the_ranges_and_can_be_put_up_twice():
    text = shapes.render_fence()
    assert "_RANGE" not in text
    assert text.count("10.96.0.0/16") == 4
    assert text.count("iptables -w -C") == 2  # asked before each is added
    assert "ip route replace unreachable 10.244.0.0/16" in text
    # systemd expands $ itself unless it is doubled or stands in single quotes that it keeps: no ${} here.
    assert "${" not in text
