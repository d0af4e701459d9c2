import re

import pytest

from farmctl.testbeds.kind.faults import fake_objects

LABEL = re.compile(
    r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?"
)  # the API's own rule for a label's value


def raw_node(name, cidr, *, control_plane=False):
    labels = {fake_objects.CONTROL_PLANE: ""} if control_plane else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"podCIDR": cidr} if cidr else {}}


def browsers():
    probe = {"httpGet": {"path": "/readyz", "port": "cdp"}, "periodSeconds": 1}
    container = {"name": "browser", "image": "farm-browser", "readinessProbe": probe}
    labels = {"app.kubernetes.io/name": "browser"}
    return {
        "spec": {
            "replicas": 4,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        }
    }


def test_dead_addresses_are_the_nodes_own_and_spot_nodes_come_first():
    nodes = [raw_node("farm-control-plane", "10.244.0.0/24", control_plane=True), raw_node("new", "")]
    nodes.append(raw_node("farm-worker", "10.244.1.0/24"))
    assert fake_objects.dead_addresses(nodes) == [
        ("farm-worker", "10.244.1.1:9222"),
        ("farm-control-plane", "10.244.0.1:9222"),
    ]


def test_a_stale_slice_is_one_the_api_takes_and_no_controller_owns():
    made = fake_objects.stale_slice("10.244.1.1:9222")
    labels = made["metadata"]["labels"]
    assert all(LABEL.fullmatch(value) for value in labels.values())
    assert labels["kubernetes.io/service-name"] == "browsers"
    assert labels[fake_objects.MANAGED_BY] != "endpointslice-controller.k8s.io"
    assert fake_objects.stale_in([made, {"metadata": {}}]) == [made]
    assert fake_objects.addresses_in([made]) == {"10.244.1.1:9222"}


@pytest.mark.parametrize(
    ("starting_s", "path", "delay"), [(None, fake_objects.NEVER, None), (2.5, "/readyz", 3)]
)
def test_unready_pods_stand_under_the_same_service_and_another_deployment(starting_s, path, delay):
    given = browsers()
    made = fake_objects.unready_deployment(given, starting_s)
    template, own = made["spec"]["template"], made["spec"]["selector"]["matchLabels"]
    assert own.items() <= template["metadata"]["labels"].items()
    assert given["spec"]["template"]["metadata"]["labels"].items() <= template["metadata"]["labels"].items()
    probe = template["spec"]["containers"][0]["readinessProbe"]
    assert (probe["httpGet"]["path"], probe.get("initialDelaySeconds")) == (path, delay)
    assert given == browsers()  # what was given is not changed
