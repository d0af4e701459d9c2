"""The manifests as kustomize renders them, checked against the schemas of the Kubernetes version they are for."""

import shutil
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from farmctl.images import catalogue
from farmctl.images.gobuild import kept_at
from farmctl.testbeds.kind import manifests
from farmctl.testbeds.kind.manifests import Rendering, identity, ours, parsed, render

IMAGES = {"browser": "docker.io/library/farm-browser:abc", "proxy": "reg.example:5000/team/farm-proxy:def"}


def kubectl() -> Path | None:
    kept = kept_at(catalogue.read().providing("kubectl"), "kubectl")
    found = shutil.which("kubectl")
    return kept if kept.exists() else Path(found) if found else None


pytestmark = pytest.mark.skipif(kubectl() is None, reason="no kubectl on PATH or kept: kustomize renders")


@pytest.fixture(scope="module")
def rendered():
    made: dict[Rendering, list[dict]] = {}

    def objects(**changes) -> dict[tuple[str, str], dict]:
        wanted = Rendering(**{"overlay": "kind", "images": IMAGES, "key": "secret", **changes})
        key = repr(wanted)
        if key not in made:
            made[key] = parsed(render(kubectl(), wanted))
        return {(item["kind"], item["metadata"]["name"]): item for item in made[key]}

    return objects


VARIANTS = [
    {"overlay": "kind"},
    {"overlay": "kind", "one_node": True},
    {"overlay": "existing", "namespace": "other", "key": ""},
    {"overlay": "existing", "own_namespace": False},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_keeps_its_schema(rendered, variant):
    version = catalogue.read().versions["kubernetes"].lstrip("v").rpartition(".")[0]
    for item in rendered(**variant).values():
        kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_is_known_as_ours_and_can_be_pruned(rendered, variant):
    prunable = {kind.partition(".")[0] for kind in manifests.KINDS}
    for item in rendered(**variant).values():
        assert ours(item), identity(item)
        assert item["kind"] == "Namespace" or plural(item["kind"]) in prunable


def plural(kind: str) -> str:
    name = kind.lower()
    return name[:-1] + "ies" if name.endswith("y") else name + "s"


def pod_spec(item):
    return item["spec"]["template"]["spec"]


def test_a_release_s_image_is_named_by_its_digest(rendered):
    digest = f"sha256:{'1' * 64}"
    found = rendered(images={**IMAGES, "proxy": f"reg.example:5000/team/farm-proxy:def@{digest}"})
    [container] = pod_spec(found["Deployment", "proxy"])["containers"]
    assert container["image"] == f"reg.example:5000/team/farm-proxy@{digest}"


def test_images_replicas_and_namespace_are_set(rendered):
    found = rendered(overlay="existing", namespace="other", pods=7)
    browsers, proxy = found["Deployment", "browsers"], found["Deployment", "proxy"]
    assert pod_spec(browsers)["containers"][0]["image"] == IMAGES["browser"]
    assert pod_spec(proxy)["containers"][0]["image"] == IMAGES["proxy"]
    assert browsers["spec"]["replicas"] == 7
    assert {item["metadata"].get("namespace", "other") for item in found.values()} == {"other"}
    assert found["Namespace", "other"]["metadata"]["name"] == "other"


def test_namespace_that_was_there_is_left_out(rendered):
    assert not [kind for kind, _ in rendered(overlay="existing", own_namespace=False) if kind == "Namespace"]


def secret_of(found):
    return {volume["secret"]["secretName"]
            for item in found.values() if item["kind"] == "Deployment"
            for volume in pod_spec(item)["volumes"] if "secret" in volume}  # fmt: skip


def test_key_is_named_by_its_content(rendered):
    (one,), (other,) = secret_of(rendered(key="one")), secret_of(rendered(key="other"))
    assert one != other
    assert {one} == {
        item["metadata"]["name"] for item in rendered(key="one").values() if item["kind"] == "Secret"
    }


def test_nothing_secret_is_printed_for_gitops(rendered):
    found = rendered(overlay="existing", key="")
    assert not [kind for kind, _ in found if kind == "Secret"]
    assert secret_of(found) == {"agent-key"}


def test_settings_are_merged_into_the_containers(rendered):
    found = rendered(proxy_env={"FARMPROXY_HOLD_DEFAULT_S": "5"}, agent_env={"FARMAGENT_RECYCLE": "spare"})
    proxy = {each["name"]: each for each in pod_spec(found["Deployment", "proxy"])["containers"][0]["env"]}
    agent = {each["name"]: each for each in pod_spec(found["Deployment", "browsers"])["containers"][0]["env"]}
    assert proxy["FARMPROXY_HOLD_DEFAULT_S"]["value"] == "5"
    assert proxy["FARMPROXY_POOLS"]["value"] == "default=browsers"
    assert agent["FARMAGENT_RECYCLE"]["value"] == "spare"
    # $(NAME) is only replaced when what it names stands before it
    order = list(agent)
    assert order.index("UID") < order.index("FARMAGENT_POD")


def test_browsers_and_proxy_stand_on_their_pools(rendered):
    found = rendered()
    assert pod_spec(found["Deployment", "browsers"])["nodeSelector"] == {"farm.pool": "spot"}
    assert pod_spec(found["Deployment", "proxy"])["nodeSelector"] == {"farm.pool": "stable"}
    one = rendered(one_node=True)
    assert "nodeSelector" not in pod_spec(one["Deployment", "browsers"])
    assert "nodeSelector" not in pod_spec(rendered(overlay="existing")["Deployment", "browsers"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_pods_are_restricted(rendered, variant):
    for name in ("browsers", "proxy"):
        spec = pod_spec(rendered(**variant)["Deployment", name])
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
    assert pod_spec(rendered(**variant)["Deployment", "browsers"])["automountServiceAccountToken"] is False


def test_ready_means_free_and_liveness_is_apart(rendered):  # field case 28
    (container,) = pod_spec(rendered()["Deployment", "browsers"])["containers"]
    ready, live = container["readinessProbe"], container["livenessProbe"]
    assert ready["httpGet"]["path"] != live["httpGet"]["path"]
    assert (ready["periodSeconds"], ready["failureThreshold"]) == (1, 1)


def test_no_service_lists_pods_that_are_not_ready_but_the_admin_ones(rendered):  # field case 4
    listing = {
        name
        for (kind, name), item in rendered().items()
        if kind == "Service" and item["spec"].get("publishNotReadyAddresses")
    }
    assert listing == {"proxy-admin", "admin"}


def test_proxy_may_read_endpoint_slices_and_nothing_else(rendered):
    (rule,) = rendered()["Role", "proxy"]["rules"]
    assert rule["resources"] == ["endpointslices"]
    assert set(rule["verbs"]) == {"get", "list", "watch"}
    assert not [kind for kind, _ in rendered() if kind.startswith("ClusterRole")]


def test_kustomization_names_only_relative_paths(tmp_path):
    made = manifests.kustomization(Rendering("kind", IMAGES, one_node=True), tmp_path)
    for path in (*made["resources"], *made["components"]):
        assert not Path(path).is_absolute()
        assert (tmp_path / path).resolve().is_dir()
    assert yaml.safe_dump(made)
