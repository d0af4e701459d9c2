"""Renders the farm's manifests: one of the overlays under data/clusters/, with images, replicas, namespace and agent key set.

Rendered by kustomize (kubectl's own), from a kustomization written here; what a GitOps repository would hold is the
same but for the key, which is a secret and never printed.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from farmctl.images.catalogue import ROOT
from farmctl.testbeds.kind.programs import run

CLUSTERS = ROOT / "clusters"
KEY_SECRET = "agent-key"
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


def kustomization(wanted: Rendering, folder: Path) -> dict[str, Any]:
    """The kustomization to stand in ``folder``, which refers to the package's clusters/ by relative paths."""
    clusters = os.path.relpath(CLUSTERS, folder)
    made: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": wanted.namespace,
        "resources": [f"{clusters}/overlays/{wanted.overlay}", *([HARNESS] if wanted.harness else [])],
        "components": [f"{clusters}/components/one-node"] if wanted.one_node else [],
        "images": [_image(image, name) for image, name in sorted(wanted.images.items())],
        "replicas": [{"name": "browsers", "count": wanted.pods}],
        "patches": [*_settings(wanted), *_namespace(wanted)],
    }
    if wanted.key:
        made["secretGenerator"] = [
            {"name": KEY_SECRET, "files": ["key"], "options": {"labels": OURS}},
        ]
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


def _settings(wanted: Rendering) -> list[dict[str, Any]]:
    """Settings over those of the base, as strategic merges into the one container of each Deployment."""
    return [
        {
            "patch": yaml.safe_dump(
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": deployment},
                    "spec": {
                        "template": {
                            "spec": {
                                "containers": [
                                    {
                                        "name": container,
                                        "env": [{"name": n, "value": v} for n, v in sorted(env.items())],
                                    }
                                ]
                            }
                        }
                    },
                }
            )
        }
        for deployment, container, env in (
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
    return [{"patch": yaml.safe_dump(patch)}]


def render(kubectl: Path, wanted: Rendering) -> str:
    """Return the manifests as YAML; ``kubectl`` may be kustomize. Raises StageError with kustomize's own words."""
    # Resolved: kustomize wants relative paths, and follows none out of another file system's links.
    with tempfile.TemporaryDirectory(prefix="farmctl-manifests-") as name:
        folder = Path(name).resolve()
        if wanted.key:
            (folder / "key").write_text(wanted.key)
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
