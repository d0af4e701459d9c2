"""Waits until an applied farm serves, and says why it does not.

Never by a Deployment's Available or Progressing: a leased pod is not ready, so a farm in full use looks like a failed
rollout. A pod is fine when it is ready, or when the proxy has it in use. Pods that end do not count: their sessions
finish by themselves.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from farmwire.reasons import Refusal

from farmctl.errors import StageError
from farmctl.testbeds.kind.api.doors import Reach
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.waiting import wait_for
from farmctl.testbeds.kind.install.rolling import Rollout

IN_USE = {"dialling", "leased", "recycling"}
BROWSERS, PROXY = "browsers", "proxy"
HASH = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Picture:
    """The farm at one moment: counts of browser pods, and what is in the way, one line each."""

    wanted: int
    new: int  # of the revision that was applied
    fine: int  # of those
    old: int  # of an older revision: the rollout has not come to them
    settled: bool  # the controllers have seen what was applied, and the proxy is rolled out
    trouble: tuple[str, ...] = ()

    @property
    def served(self) -> bool:
        return self.settled and self.fine >= self.wanted and not self.old

    def __str__(self) -> str:
        proxy = "" if self.settled else ", proxy starting"
        old = f", {self.old} of the old version" if self.old else ""
        return f"pods: {self.fine} of {self.wanted}{old}{proxy}"


def picture(objects: Iterable[Mapping[str, Any]], in_use: set[str]) -> Picture:
    """Judge Deployments, ReplicaSets and Pods of the farm; ``in_use`` holds UIDs as the proxy tells."""
    found = list(objects)
    deployments = {item["metadata"]["name"]: item for item in _of(found, "Deployment")}
    sets = {item["metadata"]["name"]: item for item in _of(found, "ReplicaSet")}
    if BROWSERS not in deployments or PROXY not in deployments:
        return Picture(0, 0, 0, 0, settled=False, trouble=("the Deployments are not there yet",))
    browsers = deployments[BROWSERS]
    pods = [pod for pod in _of(found, "Pod") if "deletionTimestamp" not in pod["metadata"]]
    mine = [
        pod for pod in pods if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "browser"
    ]
    # Until its controller has acted, the Deployment names the revision before, whose pods would pass for the new ones:
    # a farm full of old pods in use would look rolled out but for the first new one, and be drained all at once.
    newest = _newest_hash(sets.values(), browsers) if is_observed(browsers) else ""
    new = [pod for pod in mine if pod["metadata"]["labels"].get(HASH) == newest]
    return Picture(
        wanted=browsers["spec"]["replicas"],
        new=len(new),
        fine=sum(_ready(pod) or pod["metadata"]["uid"] in in_use for pod in new),
        old=len(mine) - len(new),
        settled=is_observed(browsers) and is_observed(deployments[PROXY]) and _rolled_out(deployments[PROXY]),
        trouble=(
            *(line for item in deployments.values() for line in _refusals(item)),
            *(line for pod in pods if not _ready(pod) for line in troubles(pod)),
        ),
    )


def _refusals(deployment: Mapping[str, Any]) -> list[str]:
    """Why the cluster takes no pod of it: a quota, a pod-security level, an admission webhook."""
    return [
        f"the cluster takes no pod of {deployment['metadata']['name']}: {each.get('message', '')}"
        for each in deployment.get("status", {}).get("conditions", ())
        if each["type"] == "ReplicaFailure" and each["status"] == "True"
    ]


def _of(found: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [item for item in found if item["kind"] == kind]


def is_observed(deployment: Mapping[str, Any]) -> bool:
    """Whether the controllers have acted on what the Deployment is to be now."""
    observed = deployment.get("status", {}).get("observedGeneration", 0)
    return bool(observed >= deployment["metadata"]["generation"])


def _rolled_out(deployment: Mapping[str, Any]) -> bool:
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    return bool(status.get("updatedReplicas", 0) == wanted and status.get("readyReplicas", 0) >= wanted)


def _newest_hash(sets: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]) -> str:
    """The pod-template-hash of the Deployment's own revision."""
    uid = deployment["metadata"]["uid"]
    revision = "deployment.kubernetes.io/revision"
    wanted = deployment["metadata"].get("annotations", {}).get(revision)
    for item in sets:
        owners = {owner["uid"] for owner in item["metadata"].get("ownerReferences", ())}
        if uid in owners and item["metadata"].get("annotations", {}).get(revision) == wanted:
            return str(item["metadata"]["labels"][HASH])
    return ""


def _ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def troubles(pod: Mapping[str, Any]) -> list[str]:
    """What keeps a pod from starting, in the cluster's own words."""
    status, name = pod.get("status", {}), pod["metadata"]["name"]
    lines = [
        f"{name} cannot be placed: {each.get('message', '')}"
        for each in status.get("conditions", ())
        if each["type"] == "PodScheduled" and each["status"] == "False"
    ]
    for each in status.get("containerStatuses", ()):
        waiting = each.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            node = pod["spec"].get("nodeName", "?")
            lines.append(f"{name} on {node}: {waiting['reason']}: {waiting.get('message', '')}".strip(": "))
    if status.get("reason"):
        lines.append(f"{name}: {status['reason']}: {status.get('message', '')}")
    return lines


def in_use(status: Mapping[str, Any]) -> set[str]:
    """The UIDs of the pods that the proxy's /status has in use."""
    pools: Mapping[str, Any] = status.get("pools", {})
    return {pod["uid"] for pool in pools.values() for pod in pool["pods"] if pod["state"] in IN_USE}


def look(kubectl: Kubectl, namespace: str, reach: Reach) -> Picture:
    """One look at the farm. Raises StageError when the API server does not answer."""
    from farmctl.testbeds.kind.install.applying import SELECTOR

    found = kubectl.get("deployments,replicasets,pods", "-n", namespace, "-l", SELECTOR)
    try:
        used = in_use(reach.status())
    except StageError:
        used = set()  # no proxy yet: only readiness tells
    return picture(found, used)


def wait_until_served(
    kubectl: Kubectl, namespace: str, reach: Reach, *, timeout_s: float, progress: Callable[[str], None]
) -> Picture:
    """Wait for pods and proxy, and keep a rollout going. Raises StageError with what was in the way."""
    last: list[Picture] = []
    rollout = Rollout(kubectl, namespace)

    def served() -> Picture | None:
        seen = look(kubectl, namespace, reach)
        last[:] = [seen]
        progress(str(seen))
        rollout.go_on(wanted=seen.wanted, new=seen.new, fine=seen.fine, old=seen.old)
        return seen if seen.served else None

    try:
        return wait_for(served, "the farm serves", timeout_s=timeout_s, pause_s=1.0)
    except StageError as error:
        causes = [*(last[0].trouble if last else ()), *pressed(kubectl), *last_words(kubectl, namespace)]
        raise StageError(
            "\n  ".join([str(error), *causes]), hint="farmctl status; farmctl logs proxy"
        ) from error
    finally:
        with suppress(StageError):  # the next `up` applies the manifest's own again
            rollout.leave()


def pressed(kubectl: Kubectl) -> Sequence[str]:
    """Nodes that evict pods for lack of something: that is the cause, not the farm."""
    try:
        return [
            f"node {node['metadata']['name']}: {each['type']}: {each.get('message', '')}"
            for node in kubectl.get("nodes")
            for each in node["status"].get("conditions", ())
            if each["type"].endswith("Pressure") and each["status"] == "True"
        ]
    except StageError:
        return []  # an existing cluster need not let us see its nodes


def last_words(kubectl: Kubectl, namespace: str) -> Sequence[str]:
    """What a container that keeps failing said last: one of them, they say the same."""
    try:
        for pod in kubectl.get("pods", "-n", namespace):
            for each in pod.get("status", {}).get("containerStatuses", ()):
                if each["restartCount"] and not each["ready"] and "terminated" in each.get("lastState", {}):
                    name = pod["metadata"]["name"]
                    said = kubectl(
                        "logs", "-n", namespace, name, "-c", each["name"], "--previous", "--tail=3"
                    )
                    return [f"{name} said: {line}" for line in said.strip().splitlines()]
    except StageError:
        return []  # gone by now: the fault that was waited for is told all the same
    return []


def wait_for_lease(reach: Reach, *, timeout_s: float) -> str:
    """Ask the door end to end until it leases, or says that every pod is in use: any other answer is a door that does
    not serve its callers. Raises StageError with the last one.
    """

    def asked() -> str | None:
        answer = reach.lease()
        if answer == Refusal.NO_FREE_POD and not in_use(reach.status()):
            raise StageError("the door knows of no free pod although none is in use")
        return answer

    return wait_for(asked, "the door gives a lease", timeout_s=timeout_s)
