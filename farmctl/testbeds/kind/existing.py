"""Installs the farm onto a cluster that was there before, and nothing else: rights are asked for first, a foreign object
of the same name ends it before anything is changed, and images are either the cluster's to pull or a kind cluster's to
be given. It stands when the door leases and a pod resolves names.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from farmwire.reasons import Refusal

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import engines, farm, loading, sources
from farmctl.images.catalogue import Catalogue
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind import up
from farmctl.testbeds.kind.api import doors
from farmctl.testbeds.kind.cluster import nodes, programs
from farmctl.testbeds.kind.cluster.cluster_spec import CONTEXT_PREFIX
from farmctl.testbeds.kind.cluster.kubectl import Kubectl, objects
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.install import applying, evidence, rollout_wait
from farmctl.testbeds.kind.install.applying import LEFT_BEHIND
from farmctl.testbeds.kind.install.manifests import KINDS, ours, render
from farmctl.testbeds.overrides import Overrides

ANSWER = "--request-timeout=15s"
VERBS = ("get", "list", "create", "patch", "delete")
# Besides the objects themselves: waiting for pods and looking at what keeps them, the way to the door, what a removal
# looks for before it takes the namespace along; and what the proxy's Role grants, which nobody may grant without having.
OTHER_RIGHTS = (
    *(("pods", verb) for verb in ("get", "list", "watch", "delete")),
    ("pods/portforward", "create"),
    ("pods/log", "get"),
    ("events", "list"),
    ("replicasets.apps", "list"),
    *(("endpointslices.discovery.k8s.io", verb) for verb in ("get", "list", "watch")),
)
NAMESPACE_RIGHTS = (
    *(("namespaces", verb) for verb in ("get", "create", "patch", "delete")),
    *((kind, "list") for kind in LEFT_BEHIND),
)
LEVEL = "pod-security.kubernetes.io/enforce"
KNOWN_NAME = "http://kubernetes.default.svc/"  # every cluster has it, and no page of it may be rendered
UNRESOLVED = ("ERR_NAME_NOT_RESOLVED", "not-settled")  # the second: its question was never answered


@dataclass(frozen=True, slots=True)
class WantedInstall:
    """``image_prefix``: where the cluster pulls the farm's images from ("" = they are loaded, kind only). ``tokens``: the
    text of a tokens file. What is None stays as it is.
    """

    context: str
    kubeconfig: str = ""
    namespace: str = "farm"
    pods: int | None = None
    image_prefix: str = ""
    timeout_s: float = 300.0
    overrides: Overrides = field(default_factory=Overrides)
    tokens: str | None = None
    pull_secret: str | None = None
    seccomp_profile: str | None = None
    restricted: bool | None = None
    architectures: tuple[str, ...] | None = None

    def over(self, before: Installed) -> Installed:
        """The record with what was asked for in it."""
        asked = {
            name: value
            for name in ("pods", "pull_secret", "seccomp_profile", "restricted", "architectures")
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(
            before, namespace=self.namespace, context=self.context, kubeconfig=self.kubeconfig, **asked
        )


def bring_up(wanted: WantedInstall, folder: KindFolder, say: Say) -> Installed:
    """Return the record of the farm that is installed. Raises StageError, with nothing changed where that can be."""
    before = folder.read()
    refuse_other(before, wanted)
    catalogue = catalogues.read()
    kubectl = opened(wanted.context, wanted.kubeconfig, catalogue, say)
    programs.refuse_skew(kubectl.program, wanted.kubeconfig, wanted.context)
    namespace = looked_at(kubectl, wanted.namespace)
    own = namespace is not None and (not namespace or ours(namespace))
    refuse_missing_rights(kubectl, wanted.namespace, own_namespace=own)
    images = image_names(wanted)
    default = Installed(phase="installing", architectures=made_for(images))
    there = msgspec.structs.replace(wanted.over(before or default), images=images, own_namespace=own)
    there = there.with_overrides(wanted.overrides, say)
    if (namespace or {}).get("metadata", {}).get("labels", {}).get(LEVEL) == "restricted" and not own:
        say(
            f"the namespace {wanted.namespace} enforces the level restricted: Chrome shares its agent's uid there"
        )
        there = msgspec.structs.replace(there, restricted=True)
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if wanted.tokens is not None:
        folder.keep_tokens(wanted.tokens)
    manifests = render(kubectl.program, up.rendering(there, folder))
    applying.refuse_foreign(kubectl, manifests)
    ensure_images(wanted, there.images, catalogue, say)
    folder.write(there)
    put_in(kubectl, there, folder, manifests, say, first=before is None)
    reach = doors.ClusterReach(kubectl, there.namespace, folder.token())
    say("waiting for the pods")
    try:
        rollout_wait.wait_until_served(
            kubectl, there.namespace, reach, timeout_s=wanted.timeout_s, progress=say
        )
        answer = rollout_wait.wait_for_lease(reach, timeout_s=up.DOOR_S)
        check_names(reach, say)
    except StageError as error:
        evidence.export(kubectl, there.namespace, folder.logs, say)
        raise StageError(
            str(error),
            hint=f"{error.hint}\nsee {folder.logs}; then farmctl up again goes on, farmctl down removes all of it".strip(),
        ) from error
    if not there.seccomp_profile:
        say("Chrome has no sandbox of its own here: --seccomp-profile gives it one (docs/isolation.md)")
    say(f"the door answers: {answer}")
    return folder.write(msgspec.structs.replace(there, phase="up"))


def check_names(reach: doors.Reach, say: Say) -> None:
    """Ask a pod for a page by a name that every cluster knows. Raises StageError when it resolves no names.

    The answer is a refusal (the name's address is private): what counts is that there was one to judge.
    """
    said = reach.page(KNOWN_NAME)
    if any(word in said for word in UNRESOLVED):
        raise StageError(
            f"the door leases, but a browser pod resolves no names: {said}",
            hint="the NetworkPolicy browsers lets pods ask kube-dns, NodeLocal DNSCache, Cloud DNS and OpenShift's DNS; "
            "add a policy for what this cluster's pods have in /etc/resolv.conf (docs/operating.md)",
        )
    busy = said.startswith((Refusal.NO_FREE_POD, Refusal.HOLD_TIMEOUT))
    say("whether pods resolve names was not asked: all are in use" if busy else "a pod resolves names")


def put_in(
    kubectl: Kubectl, there: Installed, folder: KindFolder, manifests: str, say: Say, *, first: bool
) -> None:
    """Apply and prune. A first install that the cluster takes only in part is taken out again. Raises StageError."""
    say("applying the manifests")
    try:
        applying.apply(kubectl, manifests, force=False)
        applying.prune(kubectl, there.namespace, manifests)
    except StageError as error:
        if not first:
            raise
        say("taking out what was applied")
        removed = applying.uninstall(kubectl, there.namespace)
        folder.remove()
        raise StageError(
            f"the cluster does not take the farm: {error}\n  taken out again: {', '.join(removed) or 'nothing was in'}",
            hint=error.hint or "mend what the cluster says, then the same farmctl up",
        ) from error


def opened(context: str, kubeconfig: str, catalogue: Catalogue, say: Say) -> Kubectl:
    return Kubectl(programs.find("kubectl", catalogue, say), kubeconfig, context)


def refuse_other(there: Installed | None, wanted: WantedInstall) -> None:
    """Raises StageError when this state folder holds another farm."""
    if there is None:
        return
    if there.shape is not None:
        raise StageError(f"a farm is up on the kind cluster {there.shape.name}", hint="farmctl down first")
    same = (there.context, there.namespace) == (wanted.context, wanted.namespace)
    if not same:
        raise StageError(
            f"a farm is installed in {there.context}, namespace {there.namespace}", hint="farmctl down first"
        )


def refuse_missing_rights(kubectl: Kubectl, namespace: str, *, own_namespace: bool = True) -> None:
    """Raises StageError naming every right that is missing, as `kubectl auth can-i` would, in one request."""
    asking = json.dumps(reviews(namespace, own_namespace=own_namespace))
    try:
        said = kubectl("create", "--validate=false", "-f", "-", "-o", "json", ANSWER, stdin=asking)
    except StageError as error:
        raise no_way_in(kubectl, error) from error
    answers = objects(said)
    missing: dict[str, list[str]] = {}
    for answer in answers:
        asked = answer["spec"]["resourceAttributes"]
        if not answer["status"].get("allowed"):
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            missing.setdefault(resource, []).append(asked["verb"])
    if missing:
        lines = "".join(f"\n  {', '.join(verbs)} {resource}" for resource, verbs in sorted(missing.items()))
        raise StageError(
            f"missing rights in namespace {namespace}:{lines}",
            hint=f"kubectl auth can-i --list -n {namespace}; ask the cluster's owner, or use another context",
        )


def no_way_in(kubectl: Kubectl, error: StageError) -> StageError:
    """What is wrong with the context itself, or with the cluster behind it."""
    said = str(error).strip().splitlines()[-1]
    named = f" --kubeconfig {kubectl.kubeconfig}" if kubectl.kubeconfig else ""
    unknown = any(word in said for word in ("context was not found", "no such file", "does not exist"))
    hint = (
        f"kubectl{named} config get-contexts"
        if unknown
        else f"is that cluster up, and may you log in? kubectl{named} --context {kubectl.context} cluster-info"
    )
    return StageError(f"no way into the cluster of context {kubectl.context!r}: {said}", hint=hint)


def reviews(namespace: str, *, own_namespace: bool) -> dict[str, object]:
    """A List of SelfSubjectAccessReviews: all that installing, looking at and removing the farm does."""
    wanted = [(kind, verb) for kind in KINDS for verb in VERBS]
    wanted += [*OTHER_RIGHTS, *(NAMESPACE_RIGHTS if own_namespace else ())]
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes(kind, verb, namespace)},
            }
            for kind, verb in wanted
        ],
    }


def attributes(kind: str, verb: str, namespace: str) -> dict[str, str]:
    name, _, subresource = kind.partition("/")
    resource, _, group = name.partition(".")
    made = {"namespace": namespace, "verb": verb, "resource": resource, "group": group}
    return {**made, "subresource": subresource} if subresource else made


def looked_at(kubectl: Kubectl, namespace: str) -> dict[str, Any] | None:
    """The namespace as the cluster has it; {} when there is none, None when we may not even look at it."""
    try:
        found = kubectl.get("namespace", namespace, ANSWER)
    except StageError:
        return None
    return found[0] if found else {}


def made_for(images: Mapping[str, str]) -> tuple[str, ...]:
    """The architectures of images that nobody told: a release's, named by digest, are for all that the manifests name;
    others were built here, for this machine's.
    """
    if all("@" in name for name in images.values()):
        return ()
    machine = platform.machine()
    return ({"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),)


def image_names(wanted: WantedInstall) -> dict[str, str]:
    """The farm's images by name, as this cluster will ask for them."""
    if not wanted.image_prefix and wanted.context.startswith(CONTEXT_PREFIX):
        return {image: farm.tag_of(image) for image in farm.PARTS}  # as they are loaded
    return farm.names(wanted.image_prefix)


def ensure_images(wanted: WantedInstall, images: Mapping[str, str], catalogue: Catalogue, say: Say) -> None:
    """Give a kind cluster the images; another has to pull them from where ``image_prefix`` says. Raises StageError."""
    if wanted.image_prefix or all("@" in name for name in images.values()):
        return
    if not wanted.context.startswith(CONTEXT_PREFIX):
        raise StageError(
            f"the cluster {wanted.context} has to pull the farm's images from somewhere",
            hint=f"farmctl images build; push {' '.join(images.values())} to a registry that the cluster reaches; "
            "then farmctl up --context … --image-prefix REGISTRY/PATH",
        )
    engine = engines.find()
    pull = sources.choose(engine, catalogue, "auto") == "registry"
    for image in images:
        farm.ensure(engine, image, say, pull=pull)
    there = [each.name for each in nodes.listed(engine, wanted.context.removeprefix(CONTEXT_PREFIX))]
    # Whose pods go where is this cluster's business.
    loading.ensure(engine, dict.fromkeys(images.values(), there), say)
