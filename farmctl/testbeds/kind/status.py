"""Looks at a farm on Kubernetes for `farmctl status`: by kubectl, and never by way of what may be down.

A cluster of our own publishes the proxy's admin port on the host, and the engine tells of its nodes: both are there
while the API server is not. In an existing cluster nothing is published and nothing but the API server is in reach: the
admin port is asked by port-forward, by the rights that installing took.
"""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from farmctl.errors import StageError
from farmctl.images import engines
from farmctl.testbeds.kind.api import doors, pod_status
from farmctl.testbeds.kind.api.objects import BROWSER_PODS, BROWSERS, SERVICE_LABEL, ApiAway, Json
from farmctl.testbeds.kind.cluster import nodes
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.looking import Look, NodeSeen, Stray, Told, asked

ANSWER = "--request-timeout=5s"
REFUSALS = ("Forbidden", "forbidden", "Unauthorized")
MANAGER_LABEL, CONTROLLER = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
HALF_MADE = "the farm is being made, or was left half made"


class OwnLook:
    """A cluster of farmctl's own."""

    kind = "kind"

    def __init__(self, kubectl: Kubectl, there: Installed, shape: Shape) -> None:
        namespace, self.overrides = there.namespace, there.overrides
        self.door, self.admin = f"http://{shape.door}", f"http://{shape.admin}"
        self.kubectl = f"KUBECONFIG={kubectl.kubeconfig} kubectl -n {namespace}"
        self._shape, self._engine = shape, there.engine
        self._cluster = _Asked(kubectl, namespace, named=self.kubectl, repair="farmctl up repairs it")

    async def told(self) -> Told:
        return await self._cluster.told()

    async def proxy(self) -> dict[str, Any] | None:
        return await asked(self.admin)

    async def nodes(self) -> list[NodeSeen]:
        running, ready = await asyncio.gather(
            asyncio.to_thread(_running, self._engine, self._shape.name), self._cluster.nodes_ready()
        )
        return [NodeSeen(name, running.get(name), ready.get(name)) for name in sorted({*running, *ready})]


class InstalledLook:
    """A farm that was installed into a cluster of somebody else."""

    kind = "existing"

    def __init__(self, kubectl: Kubectl, there: Installed) -> None:
        self._reach = doors.ClusterReach(kubectl, there.namespace)
        self.overrides = there.overrides
        named = f" --kubeconfig {there.kubeconfig}" if there.kubeconfig else ""
        self.kubectl = f"kubectl{named} --context {there.context} -n {there.namespace}"
        repair = f"{self.kubectl} cluster-info; the cluster is not farmctl's: ask who runs it"
        self._cluster = _Asked(kubectl, there.namespace, named=self.kubectl, repair=repair)
        self.door = (
            f"http://proxy.{there.namespace}:9222 (from here: {self.kubectl} port-forward service/proxy 9222)"
        )
        self.admin = f"service proxy-admin in {there.context}, namespace {there.namespace}"

    async def told(self) -> Told:
        return await self._cluster.told()

    async def proxy(self) -> dict[str, Any] | None:
        try:
            return await asyncio.to_thread(self._reach.status)
        except (StageError, ValueError):
            return None

    async def nodes(self) -> list[NodeSeen]:
        """None of its nodes is ours to start, so only those matter that are not Ready."""
        ready = await self._cluster.nodes_ready()
        return [NodeSeen(name, None, is_ready) for name, is_ready in sorted(ready.items())]


class _Asked:
    """The API server, by kubectl: quicker than importing a client, and it knows every way to log in."""

    def __init__(self, kubectl: Kubectl, namespace: str, *, named: str, repair: str) -> None:
        self._kubectl, self._namespace, self._named, self._repair = kubectl, namespace, named, repair

    async def told(self) -> Told:
        wanted = f"{SERVICE_LABEL}={BROWSERS}"
        pods, slices = await asyncio.gather(
            self._get("pods", "-n", self._namespace, "-l", BROWSER_PODS),
            self._get("endpointslices.discovery.k8s.io", "-n", self._namespace, "-l", wanted),
        )
        now = datetime.now(UTC)
        told = [pod_status.pod(raw, now) for raw in pods]
        return Told(told, pod_status.readiness(pods, slices, now), tuple(strays(pods, slices)))

    async def nodes_ready(self) -> dict[str, bool]:
        try:
            found = await self._get("nodes")
        except StageError:
            return {}  # away, or not for us to see: told() says so
        return {raw["metadata"]["name"]: pod_status.is_ready(raw) for raw in found}

    async def _get(self, *words: str) -> list[Json]:
        try:
            return await asyncio.to_thread(self._kubectl.get, *words, ANSWER)
        except StageError as error:
            said = str(error).strip().splitlines()[-1]
            if any(word in said for word in REFUSALS):
                hint = f"{self._named} auth can-i --list: looking at a farm takes get and list of pods and endpointslices"
                raise StageError(f"the API server refuses: {said}", hint=hint) from error
            raise ApiAway(f"the API server does not answer: {said}", hint=self._repair) from error


def strays(pods: Iterable[Json], slices: Iterable[Json]) -> list[Stray]:
    """Ready endpoints of no pod that the API tells of: left behind, or put there by hand."""
    standing = list(pods)
    uids = {raw["metadata"]["uid"] for raw in standing}
    addresses = {raw.get("status", {}).get("podIP") for raw in standing}
    return [
        Stray(address, each["metadata"]["name"], _managed(each))
        for each in slices
        for endpoint in each.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint["addresses"]
        if not _stands(endpoint, address, uids, addresses)
    ]


def _stands(endpoint: Json, address: str, uids: set[str], addresses: set[str | None]) -> bool:
    named = (endpoint.get("targetRef") or {}).get("uid")
    return named in uids if named else address in addresses


def _managed(each: Json) -> bool:
    return bool((each["metadata"].get("labels") or {}).get(MANAGER_LABEL) == CONTROLLER)


def _running(engine: str, cluster: str) -> dict[str, bool]:
    """The engine's word on each node; nothing when no engine answers."""
    try:
        found: Sequence[nodes.Node] = nodes.listed(engines.find(engine), cluster)
    except StageError:
        return {}
    return {each.name: each.running and not each.paused for each in found}


def look(folder: KindFolder) -> Look:
    """Raises StageError when what the record tells of was never whole."""
    from farmctl.testbeds.base import NoFarm

    there = folder.read()
    if there is None:
        raise NoFarm
    if there.phase == "creating":
        raise StageError(HALF_MADE, hint="wait for the farmctl up that runs, or run it again: it repairs")
    kubectl, _ = doors.opened(there, folder, lambda step: print(step, file=sys.stderr))
    return InstalledLook(kubectl, there) if there.shape is None else OwnLook(kubectl, there, there.shape)
