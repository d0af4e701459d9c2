"""The control plane: holds the pods, and runs what a cluster would run: replica controller, endpoints, autoscaler.

Each is a loop that waits for its bell, reads the pods as they are, and acts. None acts while the API server is
away. Faults (verbs.py) change only what a person could change on a cluster.
"""

import asyncio
import shutil
import time
import uuid
from collections.abc import Callable, Mapping

import aiohttp

from farmctl.errors import StageError
from farmctl.testbeds.base import Scaling
from farmctl.testbeds.hpa import Autoscaler, Bounds
from farmctl.testbeds.local.control_plane import replicas
from farmctl.testbeds.local.control_plane.apiserver import ApiServer
from farmctl.testbeds.local.control_plane.kubelet import Kubelet
from farmctl.testbeds.local.control_plane.launch import Launcher
from farmctl.testbeds.local.control_plane.pods import PODS_LIMIT, LivePod, free_number, new_name
from farmctl.testbeds.local.control_plane.proxies import ProxyKeeper
from farmctl.testbeds.local.control_plane.publishing import Publisher
from farmctl.testbeds.local.control_plane.store import Store
from farmctl.testbeds.local.control_plane.watches import Bell
from farmctl.testbeds.local.processes.children import Child
from farmctl.testbeds.local.settings import LocalSettings
from farmctl.testbeds.local.state import StateFolder

Say = Callable[[str, Mapping[str, object]], None]
RESYNC_S = 1.0  # controllers look again this often without being told, as informers resync
LOGS_BOUND_S = 5.0


class Plane:
    def __init__(
        self, settings: LocalSettings, folder: StateFolder, session: aiohttp.ClientSession, say: Say
    ) -> None:
        self.settings, self.say = settings, say
        self.logs, self._folder = folder.pod_logs, folder
        self.setup = setup = settings.setup  # what restore goes back to
        self.pods: dict[str, LivePod] = {}  # by uid; a pod leaves when its last process is gone
        self.dead: list[str] = []  # names, oldest first
        self.wanted = setup.pods
        self.closed_nodes: frozenset[str] = frozenset()
        self.starting_s: float | None = 0.0  # how long new pods stay unready; None: for ever
        self.scaling: Scaling | None = None
        self._autoscaler: Autoscaler | None = None
        self._bell = Bell()  # the replica controller's
        self._hpa_bell = Bell()
        watchers = Bell()
        self.store = Store(history=settings.history, on_change=watchers.ring)
        self.api = ApiServer(
            self.store,
            watchers,
            namespace=settings.namespace,
            list_pods=lambda: [pod.manifest(settings.namespace) for pod in self.pods.values()],
            bookmark_s=settings.bookmark_s,
        )
        self.publisher = Publisher(settings, self.store, may_write=lambda: self.api.running)
        self.launcher = Launcher(settings, folder)
        self.kubelet = Kubelet(self.launcher.agent, session=session, on_change=self._pod_changed, say=say)
        self.proxy = ProxyKeeper(self._start_proxy, admin=settings.admin, session=session, say=say)
        self.set_probes(setup.probe_period_s, setup.probe_threshold, setup.slice_delay_s)
        self.set_scaling(setup.scaling)

    async def run(self) -> None:
        """Until cancelled; everything that was started is gone when this returns."""
        self.launcher.make_key()
        await self.api.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.proxy.run())
                group.create_task(self.publisher.run(self.pods))
                group.create_task(self._replicate(group))
                group.create_task(self._autoscale())
                group.create_task(self._bound_logs())
        finally:
            await self.api.stop()

    # --- what a person may change ---

    def scale(self, pods: int) -> None:
        """Raises StageError for a count that one machine's addresses do not carry."""
        if not 0 <= pods <= PODS_LIMIT:
            raise StageError(f"the local testbed runs 0 to {PODS_LIMIT} pods, not {pods}")
        self.wanted = pods
        self._bell.ring()

    def set_scaling(self, scaling: Scaling | None) -> None:
        self.scaling = scaling
        self._autoscaler = None
        if scaling is not None:
            bounds = Bounds(scaling.low, scaling.high, scaling.target, scaling.scale_down_wait_s)
            self._autoscaler = Autoscaler(bounds)
        self._hpa_bell.ring()

    def set_probes(self, period_s: float, threshold: int, slice_delay_s: float) -> None:
        self.kubelet.probing.period_s, self.kubelet.probing.threshold = period_s, threshold
        self.publisher.set_delay(slice_delay_s)

    async def start_api(self) -> None:
        await self.api.start()
        self.publisher.bell.ring()
        self._bell.ring()

    def find(self, name: str) -> LivePod:
        """Raises StageError when there is no such pod."""
        for pod in self.pods.values():
            if pod.name == name:
                return pod
        raise StageError(f"no pod {name!r} in the farm", hint="farmctl status")

    def active(self) -> list[LivePod]:
        return [pod for pod in self.pods.values() if not pod.terminating]

    def settled(self) -> bool:
        """As many pods as wanted, and each was ready once: a busy pod is no failed one."""
        active = self.active()
        return len(active) == self.wanted and all(pod.ever_ready for pod in active)

    # --- the controllers ---

    async def _replicate(self, group: asyncio.TaskGroup) -> None:
        while True:
            if self.api.running:
                self._reconcile(group)
            await self._bell.wait(RESYNC_S)

    def _reconcile(self, group: asyncio.TaskGroup) -> None:
        active = self.active()
        for victim in replicas.victims([pod.candidate() for pod in active], self.wanted, self._now()):
            self.kubelet.delete(self.pods[victim.uid], self.settings.grace_s)
        for _ in range(replicas.missing(self.wanted, len(active))):
            pod = self._new_pod()
            if pod is None:
                return  # pending, on a cluster; tried again when an address or a node is free
            self.pods[pod.uid] = pod
            group.create_task(self._life(pod))

    def _new_pod(self) -> LivePod | None:
        taken = {pod.ip for pod in self.pods.values()} | self.publisher.taken_ips()
        number = free_number(self.settings.network, taken)
        nodes = [pod.node for pod in self.active()]
        node = replicas.node_for(self.settings.nodes, nodes, self.closed_nodes)
        if number is None or node is None:
            return None
        starting_s = float("inf") if self.starting_s is None else self.starting_s
        names = {pod.name for pod in self.pods.values()} | set(self.dead)
        return LivePod(
            name=new_name(self.settings.service, names),
            uid=str(uuid.uuid4()),
            number=number,
            ip=f"{self.settings.network}.{number}",
            port=self.settings.agent_port,
            node=node,
            created=self._now(),
            unready_until=time.time() + starting_s if starting_s else None,
        )

    async def _life(self, pod: LivePod) -> None:
        self.say("pod-created", {"pod": pod.name, "uid": pod.uid, "address": pod.address, "node": pod.node})
        try:
            await self.kubelet.run(pod)
        finally:
            self.pods.pop(pod.uid, None)
            self.publisher.gone(pod)
            self.dead = self.logs.drop_oldest([*self.dead, pod.name])
            shutil.rmtree(self.launcher.folder(pod), ignore_errors=True)
        self.say("pod-gone", {"pod": pod.name})
        self._bell.ring()

    async def _autoscale(self) -> None:
        while True:
            if self._autoscaler is not None and self.api.running:
                metric = await self.proxy.demand(self.settings.pool)
                # Scaling may have been turned off or set anew, or the API server stopped, while the proxy was asked.
                if self._autoscaler is not None and self.api.running:
                    self._sync(self._autoscaler, metric)
            await self._hpa_bell.wait(self.scaling.sync_s if self.scaling else None)

    def _sync(self, autoscaler: Autoscaler, metric: float | None) -> None:
        verdict = autoscaler.sync(
            metric=metric, spec_pods=self.wanted, status_pods=len(self.active()), now=self._now()
        )
        if verdict.pods != self.wanted:
            self.say("scaled", {"from": self.wanted, "to": verdict.pods, "demand": metric})
            self.scale(verdict.pods)
        elif metric is None:
            self.say("not-scaled", {"reason": verdict.reason})

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(LOGS_BOUND_S)
            await asyncio.to_thread(self._folder.bound_logs)

    def _pod_changed(self, pod: LivePod) -> None:
        self.publisher.changed(pod)
        self._bell.ring()

    async def _start_proxy(self, env: Mapping[str, str]) -> Child:
        return await self.launcher.proxy(env, self.api.port)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
