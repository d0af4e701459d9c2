"""Renders the farm's manifests: one of the overlays under data/clusters/, with images, replicas, namespace and agent key set.

Rendered by kustomize (kubectl's own), from a kustomization written here; what a GitOps repository would hold is the
same but for the secrets (the agents' key, the callers' tokens), which are never printed.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from farmctl.images.catalogue import ROOT
from farmctl.testbeds.kind.cluster.programs import run

CLUSTERS = ROOT / "clusters"
SECCOMP = (
    CLUSTERS / "seccomp" / "farm-chrome.json"
)  # containerd's default, and what Chrome's own sandbox asks for
SECCOMP_PROFILE = "farm/chrome.json"  # below the kubelet's seccomp folder
KEY_SECRET, TOKENS_SECRET = "agent-key", "door-tokens"
HARNESS = "harness.yaml"
# Every kind that an overlay holds, as kubectl names them: what is pruned and removed is looked for among these.
KINDS = (
    "deployments.apps",
    "services",
    "serviceaccounts",
    "secrets",
    "configmaps",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "networkpolicies.networking.k8s.io",
    "poddisruptionbudgets.policy",
)
OURS = {"app.kubernetes.io/part-of": "farm", "app.kubernetes.io/managed-by": "farmctl"}


@dataclass(frozen=True, slots=True)
class Rendering:
    """``images``: browser and proxy -> full name. ``key`` "" leaves the Secret out (and its name without a hash).

    ``harness`` is the one private address that pods may reach: that of the machine whose scenarios serve them pages.
    ``asks_tokens`` has the door ask for tokens; ``tokens`` is their file's text ("" leaves the Secret out).
    ``seccomp_profile``: a profile on the nodes with which Chrome keeps its own sandbox ("" = RuntimeDefault, without it).
    ``restricted``: pods at the level restricted, where Chrome shares its agent's uid. ``architectures``: () = all there are.
    """

    overlay: Literal["kind", "existing"]
    images: Mapping[str, str]
    pods: int = 4
    namespace: str = "farm"
    key: str = ""
    one_node: bool = False
    own_namespace: bool = True
    door_host: str = ""
    proxy_env: Mapping[str, str] = field(default_factory=dict)
    agent_env: Mapping[str, str] = field(default_factory=dict)
    harness: str = ""
    asks_tokens: bool = False
    tokens: str = ""
    pull_secret: str = ""
    seccomp_profile: str = ""
    restricted: bool = False
    architectures: tuple[str, ...] = ()


def kustomization(wanted: Rendering, folder: Path) -> dict[str, Any]:
    """The kustomization to stand in ``folder``, which refers to the package's clusters/ by relative paths."""
    clusters = os.path.relpath(CLUSTERS, folder)
    made: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": wanted.namespace,
        "resources": [f"{clusters}/overlays/{wanted.overlay}", *([HARNESS] if wanted.harness else [])],
        "components": [f"{clusters}/components/{name}" for name in _components(wanted)],
        "images": [_image(image, name) for image, name in sorted(wanted.images.items())],
        "replicas": [{"name": "browsers", "count": wanted.pods}],
        "patches": [*_settings(wanted), *_places(wanted), *_namespace(wanted)],
    }
    # Another key takes other pods; other tokens are read by the proxy that runs.
    secrets = [{"name": KEY_SECRET, "files": ["key"], "options": {"labels": OURS}}] if wanted.key else []
    if wanted.tokens:
        unhashed = {"labels": OURS, "disableNameSuffixHash": True}
        secrets.append({"name": TOKENS_SECRET, "files": ["tokens"], "options": unhashed})
    if secrets:
        made["secretGenerator"] = secrets
    return made


def _image(image: str, name: str) -> dict[str, str]:
    """By its digest where the name has one: kustomize takes that or a tag."""
    tagged, _, digest = name.partition("@")
    repository, _, tag = tagged.rpartition(":")
    return {
        "name": f"farm-{image}",
        "newName": repository,
        **({"digest": digest} if digest else {"newTag": tag}),
    }


def _components(wanted: Rendering) -> list[str]:
    given = {
        "one-node": wanted.one_node,
        "restricted": wanted.restricted,
        "tokens": wanted.asks_tokens or bool(wanted.tokens),
    }
    return [name for name, is_wanted in given.items() if is_wanted]


def _places(wanted: Rendering) -> list[dict[str, Any]]:
    """Where the images come from and what nodes they are for."""
    made: list[dict[str, Any]] = []
    if wanted.pull_secret:
        secrets = [{"name": wanted.pull_secret}]
        made += [
            _patch(
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": name},
                    "imagePullSecrets": secrets,
                }
            )
            for name in ("proxy", "browsers")
        ]
    if wanted.architectures:
        path = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        value = {"key": "kubernetes.io/arch", "operator": "In", "values": list(wanted.architectures)}
        patch = [{"op": "replace", "path": f"{path}/nodeSelectorTerms/0/matchExpressions/1", "value": value}]
        made.append({"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(patch)})
    if wanted.seccomp_profile:
        profile = {"type": "Localhost", "localhostProfile": wanted.seccomp_profile}
        container = {"name": "browser", "securityContext": {"seccompProfile": profile}}
        made.append(_patch(_deployment("browsers", container)))
    return made


def _deployment(name: str, container: Mapping[str, Any]) -> dict[str, Any]:
    spec = {"template": {"spec": {"containers": [container]}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _patch(merge: Mapping[str, Any]) -> dict[str, Any]:
    return {"patch": yaml.safe_dump(merge)}


def _settings(wanted: Rendering) -> list[dict[str, Any]]:
    """Settings over those of the base, as strategic merges into the one container of each Deployment."""
    return [
        _patch(
            _deployment(
                name, {"name": container, "env": [{"name": n, "value": v} for n, v in sorted(env.items())]}
            )
        )
        for name, container, env in (
            ("proxy", "proxy", wanted.proxy_env),
            ("browsers", "browser", {**_targets(wanted), **wanted.agent_env}),
        )
        if env
    ]


def _targets(wanted: Rendering) -> dict[str, str]:
    """What /render may reach besides public pages."""
    return {"FARMAGENT_PRIVATE_TARGETS": f"{wanted.harness}/32"} if wanted.harness else {}


def harness_policy(address: str) -> dict[str, Any]:
    """Lets browser pods reach the harness where a NetworkPolicy is enforced; policies add up."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "browsers-harness", "labels": OURS},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "browser"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": f"{address}/32"}}]}],
        },
    }


def _namespace(wanted: Rendering) -> list[dict[str, Any]]:
    """A namespace that was there before is used, and left alone."""
    if wanted.own_namespace:
        return []
    patch = {"$patch": "delete", "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "farm"}}
    return [_patch(patch)]


def render(kubectl: Path, wanted: Rendering) -> str:
    """Return the manifests as YAML; ``kubectl`` may be kustomize. Raises StageError with kustomize's own words."""
    # Resolved: kustomize wants relative paths, and follows none out of another file system's links.
    with tempfile.TemporaryDirectory(prefix="farmctl-manifests-") as name:
        folder = Path(name).resolve()
        if wanted.key:
            (folder / "key").write_text(wanted.key)
        if wanted.tokens:
            (folder / "tokens").write_text(wanted.tokens)
        if wanted.harness:
            (folder / HARNESS).write_text(yaml.safe_dump(harness_policy(wanted.harness)))
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization(wanted, folder)))
        verb = "build" if kubectl.name.startswith("kustomize") else "kustomize"
        return run([str(kubectl), verb, str(folder)], hint="farmctl doctor --testbed kind")


def parsed(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def identity(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Kind, namespace and name: what makes an object the same one whatever its API version."""
    meta = item["metadata"]
    return str(item["kind"]), str(meta.get("namespace", "")), str(meta["name"])


def ours(item: Mapping[str, Any]) -> bool:
    """Whether an object in a cluster was put there by farmctl."""
    labels = item["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in OURS.items())
