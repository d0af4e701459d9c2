"""Installs the farm onto a cluster that was there before, and nothing else: rights are asked for first, a foreign object
of the same name ends it before anything is changed, and images are either the cluster's to pull or a kind cluster's to
be given.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import engines, farm, loading, sources
from farmctl.images.catalogue import Catalogue
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind import applying, doors, evidence, nodes, programs, readying, starting
from farmctl.testbeds.kind.kubectl import Kubectl, objects
from farmctl.testbeds.kind.manifests import KINDS, ours, render
from farmctl.testbeds.kind.shapes import CONTEXT_PREFIX
from farmctl.testbeds.kind.state import Installed, KindFolder
from farmctl.testbeds.overrides import Overrides

ANSWER = "--request-timeout=15s"
VERBS = ("get", "list", "create", "patch", "delete")


@dataclass(frozen=True, slots=True)
class WantedInstall:
    """``image_prefix``: where the cluster pulls the farm's images from ("" = they are loaded, kind only)."""

    context: str
    kubeconfig: str = ""
    namespace: str = "farm"
    pods: int | None = None
    image_prefix: str = ""
    timeout_s: float = 300.0
    overrides: Overrides = field(default_factory=Overrides)


def bring_up(wanted: WantedInstall, folder: KindFolder, say: Say) -> Installed:
    """Return the record of the farm that is installed. Raises StageError, with nothing changed where that can be."""
    before = folder.read()
    refuse_other(before, wanted)
    catalogue = catalogues.read()
    kubectl = opened(wanted.context, wanted.kubeconfig, catalogue, say)
    programs.refuse_skew(kubectl.program, wanted.kubeconfig, wanted.context)
    refuse_missing_rights(kubectl, wanted.namespace)
    there = msgspec.structs.replace(
        before or Installed(phase="installing"),
        namespace=wanted.namespace,
        context=wanted.context,
        kubeconfig=wanted.kubeconfig,
        images=image_names(wanted),
        own_namespace=owns_namespace(kubectl, wanted.namespace),
    )
    if wanted.pods is not None:
        there = msgspec.structs.replace(there, pods=wanted.pods)
    there = there.with_overrides(wanted.overrides, say)
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    manifests = render(kubectl.program, starting.rendering(there, folder))
    applying.refuse_foreign(kubectl, manifests)
    ensure_images(wanted, there.images, catalogue, say)
    folder.write(there)
    put_in(kubectl, there, folder, manifests, say, first=before is None)
    reach = doors.ClusterReach(kubectl, there.namespace)
    say("waiting for the pods")
    try:
        readying.wait_until_served(kubectl, there.namespace, reach, timeout_s=wanted.timeout_s, progress=say)
        answer = readying.wait_for_lease(reach, timeout_s=starting.DOOR_S)
    except StageError as error:
        evidence.export(kubectl, there.namespace, folder.logs, say)
        raise StageError(
            str(error),
            hint=f"see {folder.logs}; then farmctl up again goes on, farmctl down removes all of it",
        ) from error
    say(f"the door answers: {answer}")
    return folder.write(msgspec.structs.replace(there, phase="up"))


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


def refuse_missing_rights(kubectl: Kubectl, namespace: str) -> None:
    """Raises StageError naming every right that is missing, as `kubectl auth can-i` would, in one request."""
    asking = json.dumps(reviews(namespace))
    try:
        said = kubectl("create", "--validate=false", "-f", "-", "-o", "json", ANSWER, stdin=asking)
    except StageError as error:
        raise no_way_in(kubectl, error) from error
    answers = objects(said)
    missing: dict[str, list[str]] = {}
    for answer in answers:
        asked = answer["spec"]["resourceAttributes"]
        if not answer["status"].get("allowed"):
            missing.setdefault(asked["resource"], []).append(asked["verb"])
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


def reviews(namespace: str) -> dict[str, object]:
    """A List of SelfSubjectAccessReviews: what installing and removing the farm does."""
    wanted = [(kind, verb) for kind in KINDS for verb in VERBS]
    wanted += [("pods", "list"), ("pods", "delete"), ("services/proxy", "get")]
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


def owns_namespace(kubectl: Kubectl, namespace: str) -> bool:
    """Whether the namespace is ours to make and to remove. One that we may not even look at is not."""
    try:
        found = kubectl.get("namespace", namespace)
    except StageError:
        return False
    return not found or ours(found[0])


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
