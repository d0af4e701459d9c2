from pathlib import Path

import pytest

from farmctl.testbeds.kind.install.manifests import HARNESS, Rendering, harness_policy, kustomization


@pytest.mark.parametrize("harness", ["", "10.89.0.1"])
def test_pods_reach_the_harness_and_no_other_private_address(harness):
    made = kustomization(Rendering("kind", {"browser": "a:1", "proxy": "b:1"}, harness=harness), Path("/tmp"))
    assert (HARNESS in made["resources"]) is bool(harness)
    patched = "".join(each["patch"] for each in made["patches"])
    assert ("10.89.0.1/32" in patched) is bool(harness)
    assert ("FARMAGENT_PRIVATE_TARGETS" in patched) is bool(harness)


def test_the_exception_is_one_address():
    [rule] = harness_policy("10.89.0.1")["spec"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "10.89.0.1/32"}}]
