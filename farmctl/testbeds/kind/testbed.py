"""The farm on a kind cluster as scenarios see it: every verb of the interface, done for real on nodes and by the API.

A verb that can end a pod first keeps what the pods wrote; a fault is written down before it is made.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec

from farmctl.errors import StageError
from farmctl.images.engines import Engine
from farmctl.testbeds.base import NotStaged, Pod, Readiness, Scaling, Setup
from farmctl.testbeds.kind.api import pod_status
from farmctl.testbeds.kind.api.admin import Admin
from farmctl.testbeds.kind.api.limits import until
from farmctl.testbeds.kind.api.objects import BROWSERS, PROXY, Api, ApiAway, Json
from farmctl.testbeds.kind.cluster import gateways, nodes, pod_logs
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.containers import Containers, Place
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.faults import autoscaling, fake_objects
from farmctl.testbeds.kind.faults.controlplane import ControlPlane
from farmctl.testbeds.kind.faults.deployments import Deployments
from farmctl.testbeds.kind.faults.proxies import Proxies
from farmctl.testbeds.kind.faults.records import FaultsFile
from farmctl.testbeds.kind.faults.restore import Wholeness
from farmctl.testbeds.kind.faults.spot import Spot
from farmctl.testbeds.kind.install.rolling import Rollout

SEEN_S = 10.0
GONE_S = 10.0
AUTOSCALER, LOSS, SUCCESSOR = "autoscaler", "loss of a node", "the proxy's successor"
ONE_NODE = "one node: packets between its pods pass no firewall"
NO_SPOT = "one node: there is no spot node to lose"


@dataclass(frozen=True, slots=True)
class Opened:
    """What a testbed stands on."""

    folder: KindFolder
    installed: Installed
    cluster: Cluster
    node_names: tuple[str, ...]  # the control plane's first
    pages_host: str

    @property
    def engine(self) -> Engine:
        return self.cluster.engine


class KindTestbed:
    kind = "kind"

    def __init__(self, opened: Opened) -> None:
        shape = opened.cluster.shape
        self._opened, self._folder = opened, opened.folder
        self.namespace = opened.installed.namespace
        self.door, self.admin = f"http://{shape.door}", f"http://{shape.admin}"
        self.pages_host = opened.pages_host
        self.cannot: dict[str, str] = {} if shape.workers else {"cut_off": ONE_NODE, "reclaim_node": NO_SPOT}
        self._api = Api(opened.cluster.kubectl.kubeconfig, opened.cluster.kubectl.context, self.namespace)
        self._status = Admin(self.admin, self.door)
        self._faults = FaultsFile(opened.folder.path)
        self._containers = Containers(opened.engine)
        self._witnesses = pod_logs.Witnesses(self._containers, self.namespace)
        self._control = ControlPlane(self._containers, opened.node_names[0], self._api)
        self._deployments = Deployments(self._api, self._status, self._faults)
        self._proxies = Proxies(self._api, self._containers, self._deployments)
        self._spot = Spot(self._api, opened.folder, opened.cluster)
        self._kept = autoscaling.Kept()
        self._seen: dict[str, Pod] = {}  # by name, as the API last told

    @classmethod
    async def connect(cls, folder: KindFolder) -> "KindTestbed":
        """Raises StageError when no farm of our own cluster is up on this state folder."""
        return cls(await asyncio.to_thread(_opened, folder))

    async def setup(self) -> Setup:
        there = self._installed()
        return Setup(pods=there.pods, proxy_env=there.proxy_env, agent_env=there.agent_env)

    async def pods(self) -> list[Pod]:
        """As the API tells; while it is away, what the nodes say has become of those it told of last."""
        try:
            return await self._listed()
        except ApiAway:
            if not self._seen:
                raise
            return await self._by_nodes()

    async def readiness(self) -> list[Readiness]:
        pods, slices = await asyncio.gather(self._api.pods(), self._api.slices())
        return pod_status.readiness(pods, slices, datetime.now(UTC))

    async def listens(self, pod: Pod) -> bool:
        """Asked from the pod's own node: this machine has no way to a pod's address. A lost node has no listener."""
        try:
            return bool(pod.node and pod.address) and await self._containers.accepts(pod.node, pod.address)
        except StageError:
            return False

    async def pod_logs_since(self, mark: float) -> dict[str, list[str]]:
        return await self._witnesses.since(self._opened.node_names, mark, "browser")

    async def proxy_log_since(self, mark: float) -> list[str]:
        found = await self._witnesses.since(self._opened.node_names, mark, "proxy")
        return pod_logs.in_order(line for lines in found.values() for line in lines)

    async def kill(self, pod: str, *, grace_s: float = 0.0) -> float:
        """With the API server away only the processes die, and the kubelet starts the pod again in its place."""
        one = await self._find(pod)
        await self._keep([one.node])
        self._faults.tell(f"kill {pod}")
        if grace_s > 0:
            at = time.time()
            await self._api.delete_pod(pod, one.uid, grace_s=max(1.0, grace_s))
            return at
        at = await self._containers.kill(_place(one))
        try:
            await self._api.delete_pod(pod, one.uid, grace_s=0)
            await until(lambda: self._is_gone(one), f"{pod} is gone", GONE_S)
        except ApiAway:
            pass
        return at

    async def kill_chrome(self, pod: str) -> None:
        await self._containers.kill_chrome(_place(await self._find(pod)))

    async def freeze(self, pod: str, *, what: Literal["pod", "chrome"] = "pod") -> None:
        one = await self._find(pod)
        self._faults.tell(f"freeze {what} {pod}")
        await self._containers.freeze(_place(one), what)

    async def thaw(self, pod: str) -> None:
        await self._containers.thaw(_place(await self._find(pod)))

    async def cut_off(self, pod: str) -> None:
        if "cut_off" in self.cannot:
            raise NotStaged(ONE_NODE)
        one = await self._find(pod)
        self._faults.tell(f"cut off {pod}")
        await self._containers.cut_off(_place(one))

    async def mend(self, pod: str) -> None:
        await self._containers.mend(_place(await self._find(pod)))

    async def add_stale_endpoint(self) -> str:
        taken = fake_objects.addresses_in(await self._api.slices())
        for node, address in fake_objects.dead_addresses(await self._api.nodes()):
            if address not in taken and await self._containers.refuses(node, address):
                break
        else:
            raise NotStaged("no dead address is left", hint="farmctl up puts the farm back")
        self._faults.tell(f"stale endpoint {address}")
        await self._api.create_slice(fake_objects.stale_slice(address))
        await until(lambda: self._proxy_knows(address), f"the proxy takes up {address}", SEEN_S)
        return address

    async def set_probes(self, *, period_s: float, threshold: int = 1, slice_delay_s: float = 0.0) -> None:
        """A new probe is a rollout of the pods; a slice's delay is the controllers' own batch period, at most."""
        await self._keep()
        self._faults.tell(f"probes each {period_s:g} s, slices {slice_delay_s:g} s late")
        await self._control.slices_late(slice_delay_s)
        if await self._deployments.set_probe(period_s, threshold):
            await self._deployments.until_rolled_out()

    async def make_pods_unready(self, starting_s: float | None) -> None:
        self._faults.tell("new pods are not ready")
        await self._api.delete_deployment(fake_objects.UNREADY)
        browsers = await self._deployments.get(BROWSERS)
        await self._api.create_deployment(fake_objects.unready_deployment(browsers, starting_s))

    async def scale(self, pods: int) -> None:
        await self._keep()
        self._faults.tell(f"scaled to {pods}")
        await self._deployments.scale(pods)

    async def roll_out(self) -> None:
        """As `farmctl up` does it, an annotation being all that is new."""
        await self._keep()
        self._faults.tell("rollout")
        await self._deployments.roll_out(Rollout(self._opened.cluster.kubectl, self.namespace))

    async def resize(self, pods: int, scaling: Scaling | None) -> None:
        """As a person scales: also what ``restore`` goes back to. Nobody is left here to run an autoscaler."""
        if scaling is not None:
            raise StageError(
                "an autoscaler of the cluster's own is not installed", hint="farmctl scale N, without --auto"
            )
        self._folder.write(msgspec.structs.replace(self._installed(), pods=pods))
        await self._keep()
        await self._deployments.scale(pods)

    async def autoscale(self, scaling: Scaling | None) -> None:
        """The HPA's formula, run from here on the proxy's demand: this cluster has no metrics chain."""
        await self._kept.stop(AUTOSCALER)
        if scaling is None:
            return
        self._faults.tell(f"autoscaled {scaling.low} to {scaling.high}")
        work = autoscaling.follow(
            scaling, demand=self._status.demand, counts=self._deployments.counts, scale=self.scale
        )
        await self._kept.start(AUTOSCALER, work)

    async def restart_proxy(self, *, how: Literal["kill", "term"] = "term", wait: bool = True) -> None:
        """Asked to stop, the proxy has no successor until it has gone: see ``proxies``."""
        await self._keep(self._opened.node_names)
        self._faults.tell(f"proxy restarted ({how})")
        old = await self._proxies.uids()
        if how == "kill":
            await self._proxies.kill(old)
            if wait:
                await self._deployments.until_proxy_serves(not_of=old)
            return
        await self._proxies.tell()
        if wait:
            await self._proxies.succeed()
        else:
            await self._kept.start(SUCCESSOR, self._proxies.succeed())

    async def set_proxy_env(self, env: dict[str, str]) -> None:
        await self._keep()
        self._faults.tell(f"proxy's settings {', '.join(sorted(env))}")
        await self._proxies.take_away()
        await self._deployments.set_env(PROXY, env)
        await self._proxies.put_back()

    async def stop_api(self) -> None:
        await self._listed()  # what is known while it is away
        self._faults.tell("API server cut off")
        await self._control.stop_api()

    async def start_api(self) -> None:
        await self._control.start_api()

    async def reclaim_node(self, node: str, *, notice_s: float) -> Sequence[str]:
        """Returns the names of the pods on it: told to go with notice, lost at once without; the node after it."""
        spot = list(self._opened.node_names[1:])
        if node not in spot:
            raise StageError(f"no spot node {node!r}", hint=f"nodes: {', '.join(spot) or 'none'}")
        await self._keep()
        self._faults.tell(f"reclaim {node}")
        if notice_s <= 0:
            lost = [pod.name for pod in await self._listed() if pod.node == node]
            await self._spot.lose(node)
            return lost
        lost = await self._spot.notice(node)
        await self._kept.start(LOSS, self._lose_after(node, notice_s))
        return lost

    async def node_is_lost(self, node: str) -> bool:
        """By the engine's word: no such container runs."""
        found = await asyncio.to_thread(self._opened.cluster.nodes)
        return all(each.name != node or not each.running for each in found)

    async def return_nodes(self) -> list[str]:
        """Bring reclaimed nodes back before ``restore`` would; the names of those that were gone."""
        await self._kept.stop(LOSS)
        return await self._spot.bring_back()

    async def restore(self) -> None:
        await self._kept.stop_all()
        await self._keep()
        await self._whole().restore(list(self._opened.node_names), self._installed().pods)

    async def undo(self) -> list[str]:
        """What a command that is gone has left broken, all pods in use or not; what it had done, for a person."""
        told = self._faults.read().told
        await self._whole().undo(list(self._opened.node_names), self._installed().pods)
        self._faults.clear()
        return told

    def _whole(self) -> Wholeness:
        return Wholeness(
            api=self._api,
            admin=self._status,
            containers=self._containers,
            control=self._control,
            deployments=self._deployments,
            proxies=self._proxies,
            spot=self._spot,
            faults=self._faults,
        )

    async def _lose_after(self, node: str, notice_s: float) -> None:
        await asyncio.sleep(notice_s)
        await self._witnesses.keep([node])
        await self._spot.lose(node)

    async def _keep(self, names: Sequence[str] | None = None) -> None:
        await self._witnesses.keep(self._opened.node_names if names is None else names)

    async def _listed(self) -> list[Pod]:
        now = datetime.now(UTC)
        found = [pod_status.pod(raw, now) for raw in await self._api.pods()]
        self._seen = {pod.name: pod for pod in found}
        return found

    async def _by_nodes(self) -> list[Pod]:
        there = {pod.node for pod in self._seen.values() if pod.node}
        asked = await asyncio.gather(*(self._containers.listed(node) for node in there))
        found = [each for containers in asked for each in containers]
        return [pod_status.by_containers(pod, found) for pod in self._seen.values()]

    async def _find(self, name: str) -> Pod:
        """Raises StageError when there is no such pod, NotStaged when it stands on no node yet."""
        found = next((pod for pod in await self.pods() if pod.name == name), None)
        if found is None:
            raise StageError(f"no pod {name!r}", hint="farmctl status")
        if not found.node:
            raise NotStaged(f"{name} has no node yet")
        return found

    async def _is_gone(self, one: Pod) -> bool:
        return all(raw["metadata"]["uid"] != one.uid for raw in await self._api.pods())

    async def _proxy_knows(self, address: str) -> bool:
        pool: Json = await self._status.pool() or {"pods": []}
        return any(pod["address"] == address for pod in pool["pods"])

    def _installed(self) -> Installed:
        return self._folder.read() or self._opened.installed


def _place(pod: Pod) -> Place:
    return Place(pod.node, pod.uid, pod.address.rpartition(":")[0])


def _opened(folder: KindFolder) -> Opened:
    from farmctl.images import catalogue, engines
    from farmctl.testbeds.base import NoFarm
    from farmctl.testbeds.kind.api import clusters

    installed = folder.read()
    if installed is None:
        raise NoFarm
    if installed.shape is None:
        raise StageError(
            f"the farm in {installed.context} has no door on this machine, and its nodes are not ours to break",
            hint="scenarios run on farmctl up --testbed kind or local",
        )
    engine = engines.find(installed.engine)
    found = nodes.listed(engine, installed.shape.name)
    if not found or installed.phase == "creating":
        raise StageError("the farm's cluster is not there or half made", hint="farmctl up repairs it")
    cluster = clusters.opened(engine, catalogue.read(), folder, installed.shape, lambda _: None)
    names = tuple(each.name for each in found)
    return Opened(folder, installed, cluster, names, gateways.host_address(engine))
