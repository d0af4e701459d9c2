"""Puts the manifests into a cluster and takes them out again: server-side apply under a field manager of our own, and
prune by label of what the set no longer holds.

Nobody else's object is ever changed: one of the same name that is not ours is refused before anything is applied.
(kubectl's own prune reads an annotation that server-side apply does not write, and its successor is alpha in 1.34.)
"""

from collections.abc import Iterable
from typing import Any

from farmctl.errors import StageError
from farmctl.testbeds.kind.cluster.kubectl import FIELD_MANAGER, Kubectl, objects
from farmctl.testbeds.kind.install.manifests import KINDS, OURS, identity, ours, parsed

SELECTOR = ",".join(f"{key}={value}" for key, value in OURS.items())
# A browser's grace is as long as the longest lease: an uninstall does not wait for that.
GONE_S = 60
# Somebody else's, besides KINDS: what would go with the namespace.
LEFT_BEHIND = ("statefulsets.apps", "daemonsets.apps", "jobs.batch", "pods", "persistentvolumeclaims")
# What every namespace has, whoever made it.
NATIVE = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}


def refuse_foreign(kubectl: Kubectl, manifests: str) -> None:
    """Raises StageError when an object of the set is there already and somebody else's."""
    there = objects(kubectl("get", "-f", "-", "--ignore-not-found", "-o", "json", stdin=manifests))
    foreign = [item for item in there if not ours(item)]
    if foreign:
        names = ", ".join(f"{item['kind']} {item['metadata']['name']}" for item in foreign)
        namespace = foreign[0]["metadata"].get("namespace", foreign[0]["metadata"]["name"])
        raise StageError(
            f"{names} in namespace {namespace} is there already and not farmctl's: nothing was changed",
            hint="farmctl up --context NAME --namespace another",
        )


def apply(kubectl: Kubectl, manifests: str, *, force: bool) -> None:
    """Apply the set. ``force`` takes over fields that others own, which is right only in a cluster of our own."""
    words = ["apply", "--server-side", f"--field-manager={FIELD_MANAGER}", "-f", "-"]
    hint = "" if force else "see who owns the field: kubectl get … -o yaml --show-managed-fields"
    kubectl(*words, *(["--force-conflicts"] if force else []), stdin=manifests, hint=hint)


def prune(kubectl: Kubectl, namespace: str, manifests: str) -> list[str]:
    """Remove what carries our labels and is not in the set any more; what was removed."""
    wanted = {identity(item) for item in parsed(manifests)}
    stale = [item for item in installed(kubectl, namespace) if identity(item) not in wanted]
    return delete(kubectl, stale)


def installed(kubectl: Kubectl, namespace: str) -> list[dict[str, Any]]:
    """Everything of ours in the namespace (not the namespace itself)."""
    found = kubectl.get(",".join(KINDS), "-n", namespace, "-l", SELECTOR)
    return [item for item in found if not item["metadata"].get("ownerReferences")]


def delete(kubectl: Kubectl, items: Iterable[dict[str, Any]]) -> list[str]:
    """Delete the objects without waiting; their ``kind/name``."""
    gone = []
    for item in items:
        meta = item["metadata"]
        words = [f"{item['kind'].lower()}/{meta['name']}", "--ignore-not-found", "--wait=false"]
        kubectl("delete", *(["-n", meta["namespace"]] if "namespace" in meta else []), *words)
        gone.append(words[0])
    return gone


def uninstall(kubectl: Kubectl, namespace: str) -> list[str]:
    """Remove all of ours, the namespace too if it is ours and nothing of others is in it; what was removed."""
    there = kubectl.get("namespace", namespace)
    if not there:
        return []
    gone = delete(kubectl, installed(kubectl, namespace))
    kubectl(
        "delete", "pods", "-n", namespace, "-l", SELECTOR, "--ignore-not-found", "--grace-period=1",
        timeout_s=GONE_S + 60,
    )  # fmt: skip
    if ours(there[0]) and not left_by_others(kubectl, namespace):
        kubectl("delete", "namespace", namespace, f"--timeout={GONE_S}s", timeout_s=GONE_S + 30)
        gone.append(f"namespace/{namespace}")
    return gone


def left_by_others(kubectl: Kubectl, namespace: str) -> list[str]:
    """What in the namespace is nobody's of the farm: it would go with the namespace."""
    return [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in kubectl.get(",".join((*KINDS, *LEFT_BEHIND)), "-n", namespace)
        if not ours(item) and (item["kind"], item["metadata"]["name"]) not in NATIVE
    ]
