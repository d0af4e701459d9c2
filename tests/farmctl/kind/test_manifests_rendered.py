"""The manifests as kustomize renders them, checked against the schemas of the Kubernetes version they are for."""

import base64
import json
import shutil
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from farmctl.images import catalogue
from farmctl.images.gobuild import kept_at
from farmctl.testbeds.kind.install import manifests
from farmctl.testbeds.kind.install.manifests import Rendering, identity, ours, parsed, render

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
    {"overlay": "existing", "restricted": True},
    {
        "overlay": "existing",
        "tokens": "me:secret",
        "pull_secret": "registry",
        "seccomp_profile": "farm/chrome.json",
        "architectures": ("arm64",),
    },
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


# kubernetes.io/docs/concepts/security/pod-security-standards: what the level baseline lets a container add
BASELINE = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_pods_keep_to_the_level_that_their_namespace_enforces(rendered, variant):
    found = rendered(**variant)
    level = "restricted" if variant.get("restricted") else "baseline"
    for (kind, _), item in found.items():
        if kind == "Namespace":
            assert item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == level
    for name in ("browsers", "proxy"):
        spec = pod_spec(found["Deployment", name])
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"]["drop"] == ["ALL"]
            assert set(context["capabilities"].get("add", ())) <= BASELINE
        if name == "proxy" or level == "restricted":
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["runAsUser"] != 0
            assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_key_of_all_agents_is_for_the_agent_alone(rendered):
    """No group: every Chrome has a uid of its own, and none of them the agent's."""
    browsers = pod_spec(rendered()["Deployment", "browsers"])
    (key,) = [volume["secret"] for volume in browsers["volumes"] if "secret" in volume]
    assert key["defaultMode"] == 0o400
    assert "fsGroup" not in browsers["securityContext"]
    assert browsers["containers"][0]["securityContext"]["runAsUser"] == 0
    assert browsers["automountServiceAccountToken"] is False


@pytest.mark.parametrize("restricted", [False, True])
def test_every_volume_that_a_download_may_name_is_swept(rendered, restricted):
    """Also under a shared uid, where only the agent's own work volume and FARMAGENT_SWEEP are looked through."""
    spec = pod_spec(rendered(overlay="existing", restricted=restricted)["Deployment", "browsers"])
    (container,) = spec["containers"]
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    empty = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in empty}
    assert writable == {env["FARMAGENT_WORK_DIR"], *env["FARMAGENT_SWEEP"].split(",")}


def test_a_seccomp_profile_of_the_nodes_is_asked_for_where_it_is_there(rendered):
    def asked(**changes):
        (container,) = pod_spec(rendered(**changes)["Deployment", "browsers"])["containers"]
        return container["securityContext"].get("seccompProfile")

    assert asked(overlay="existing") is None  # the pod's: RuntimeDefault
    assert asked(seccomp_profile="farm/chrome.json") == {
        "type": "Localhost",
        "localhostProfile": "farm/chrome.json",
    }


def allowed(name, *args):
    """Whether the profile lets a system call through (seccomp: the first rule whose conditions hold decides)."""
    profile = json.loads(manifests.SECCOMP.read_text())
    for rule in profile["syscalls"]:
        tests = rule.get("args") or []
        masked = all(args[each["index"]] & each["value"] == each.get("valueTwo", 0) for each in tests)
        if name in rule["names"] and masked:
            return rule["action"] == "SCMP_ACT_ALLOW"
    return profile["defaultAction"] == "SCMP_ACT_ALLOW"


NEW_USER, NEW_PID, NEW_NET, NEW_NS, NEW_UTS = 0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x04000000


@pytest.mark.parametrize("call", ["clone", "unshare"])
def test_the_profile_allows_what_chromes_sandbox_is_made_of_and_no_more(call):
    assert allowed(call, NEW_USER | NEW_PID | NEW_NET)
    assert allowed("chroot")
    for more in (NEW_NS, NEW_UTS):
        assert not allowed(call, NEW_USER | more)
    for other in ("mount", "setns", "bpf", "keyctl", "init_module", "clone3"):
        assert not allowed(other, 0)


def names_of(service, namespace):
    yield from (service, f"{service}.{namespace}", f"{service}.{namespace}.svc")
    yield f"{service}.{namespace}.svc.cluster.local"


@pytest.mark.parametrize("variant", [{}, {"overlay": "existing", "namespace": "other"}])
def test_callers_inside_may_write_any_name_of_a_service_that_leads_to_the_door(rendered, variant):
    found = rendered(**variant)
    namespace = variant.get("namespace", "farm")
    env = pod_spec(found["Deployment", "proxy"])["containers"][0]["env"]
    order = [each["name"] for each in env]
    (hosts,) = [each["value"] for each in env if each["name"] == "FARMPROXY_HOSTS"]
    if "$(" in hosts:  # replaced only by what stands before it
        assert order.index("FARMPROXY_NAMESPACE") < order.index("FARMPROXY_HOSTS")
    known = set(hosts.replace("$(FARMPROXY_NAMESPACE)", namespace).split(","))
    doors = [
        name
        for (kind, name), item in found.items()
        if kind == "Service" and any(port.get("targetPort") == "door" for port in item["spec"]["ports"])
    ]
    assert "proxy" in doors
    for name in doors:
        assert set(names_of(name, namespace)) <= known


@pytest.mark.parametrize("name", ["proxy", "browsers"])
def test_pods_are_put_on_nodes_that_the_images_are_for(rendered, name):
    def nodes(**changes):
        affinity = pod_spec(rendered(**changes)["Deployment", name])["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return {each["key"]: each["values"] for each in term["matchExpressions"]}

    assert nodes() == {"kubernetes.io/os": ["linux"], "kubernetes.io/arch": ["amd64", "arm64"]}
    assert nodes(architectures=("arm64",))["kubernetes.io/arch"] == ["arm64"]


def test_a_registry_that_asks_who_one_is_is_told(rendered):
    found = rendered(overlay="existing", pull_secret="registry")
    for name in ("proxy", "browsers"):
        assert found["ServiceAccount", name]["imagePullSecrets"] == [{"name": "registry"}]


def test_tokens_are_a_secret_that_the_proxy_alone_mounts(rendered):
    found = rendered(overlay="existing", tokens="me:secret\n")
    secret = found["Secret", "door-tokens"]  # no hash in its name: other tokens need no other proxy
    assert base64.b64decode(secret["data"]["tokens"]) == b"me:secret\n"
    proxy = pod_spec(found["Deployment", "proxy"])
    (file,) = [e["value"] for e in proxy["containers"][0]["env"] if e["name"] == "FARMPROXY_TOKENS_FILE"]
    (mount,) = [m for m in proxy["containers"][0]["volumeMounts"] if m["name"] == "door-tokens"]
    assert file == f"{mount['mountPath']}/tokens"
    assert "tokens" not in yaml.safe_dump(pod_spec(found["Deployment", "browsers"]))
    printed = rendered(overlay="existing", asks_tokens=True, key="")
    assert ("Secret", "door-tokens") not in printed
    assert "FARMPROXY_TOKENS_FILE" in yaml.safe_dump(printed["Deployment", "proxy"])


def rules(item, way):
    return [(port.get("protocol", "TCP"), port["port"], peer)
            for rule in item["spec"][way] for port in rule.get("ports", ()) for peer in rule.get("to") or rule.get("from") or [{}]]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "port"),
    [
        ({"ipBlock": {"cidr": "169.254.20.10/32"}}, 53),  # NodeLocal DNSCache
        ({"ipBlock": {"cidr": "169.254.169.254/32"}}, 53),  # Cloud DNS of GKE
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}, 5353),
    ],
)
def test_pods_may_ask_every_usual_name_server_and_no_other_port_of_it(rendered, where, port):
    policy = rendered(overlay="existing")["NetworkPolicy", "browsers"]
    opened = [(protocol, number) for protocol, number, peer in rules(policy, "egress") if peer == where]
    assert sorted(opened) == [("TCP", port), ("UDP", port)]


def test_the_admin_port_is_for_its_own_namespace_and_for_those_that_say_so(rendered):
    policy = rendered(overlay="existing")["NetworkPolicy", "proxy"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]  # the API server's address is nobody's to know here
    opened = rules(policy, "ingress")
    assert ("TCP", 9222, {}) in opened
    admin = [peer for _, port, peer in opened if port == 9223]
    assert {} not in admin
    assert {"podSelector": {}} in admin


@pytest.mark.parametrize("proxies", [1, 2])
def test_no_budget_keeps_a_node_from_being_drained_for_ever(rendered, proxies):
    (budget,) = [item for (kind, _), item in rendered().items() if kind == "PodDisruptionBudget"]
    assert budget["spec"]["selector"] == {"matchLabels": {"app.kubernetes.io/name": "proxy"}}
    wanted = proxies - budget["spec"]["maxUnavailable"]  # the disruption controller's desiredHealthy
    assert proxies - wanted >= 1  # so many may be evicted while all serve
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"  # and one that does not serve always


def test_ready_means_free_and_liveness_is_apart(rendered):
    (container,) = pod_spec(rendered()["Deployment", "browsers"])["containers"]
    ready, live = container["readinessProbe"], container["livenessProbe"]
    assert ready["httpGet"]["path"] != live["httpGet"]["path"]
    assert (ready["periodSeconds"], ready["failureThreshold"]) == (1, 1)


@pytest.mark.parametrize("name", ["proxy", "browsers"])
def test_nothing_eats_the_grace_that_a_reclaimed_machine_leaves(rendered, name):
    """A preStop hook that sleeps runs before SIGTERM, out of the same 15 to 30 s: draining begins with the signal."""
    for container in pod_spec(rendered()["Deployment", name])["containers"]:
        assert "lifecycle" not in container


def test_no_service_lists_pods_that_are_not_ready_but_the_admin_ones(rendered):
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
