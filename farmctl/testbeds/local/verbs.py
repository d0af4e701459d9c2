"""What a scenario may do to the local testbed. A verb returns when the thing has really happened, else it raises.

Everything done here is undone by ``restore``, and by the end of the supervisor.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

from farmwire import paths

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged, Scaling
from farmctl.testbeds.local.control_plane.endpoints import MANAGED_BY, slice_of
from farmctl.testbeds.local.control_plane.plane import Plane
from farmctl.testbeds.local.control_plane.pods import DEAD_ADDRESSES, LivePod
from farmctl.testbeds.local.control_plane.probes import TIMEOUT_S
from farmctl.testbeds.local.control_plane.store import labels_of
from farmctl.testbeds.local.processes import children, proctree
from farmctl.testbeds.local.processes.netcut import Netcut

HAND_MADE = "farmctl.dev/by-hand"  # managed-by of slices that no controller touches
SEEN_LIMIT_S = 5.0
WHOLE_LIMIT_S = 60.0
STRAGGLER_LIMIT_S = 20.0  # after a scenario: a pod that is still not free by then is replaced


class Verbs:
    def __init__(self, plane: Plane, netcut: Netcut) -> None:
        self._plane, self._netcut = plane, netcut
        self._proxy_changed = False

    async def kill(self, pod: str, grace_s: float = 0.0) -> None:
        target = self._plane.find(pod)
        if grace_s > 0:
            self._plane.kubelet.delete(target, grace_s)
            return
        target.doomed = True
        if target.child is not None:
            await target.child.kill()
        self._plane.kubelet.delete(target, 0.0)

    async def kill_chrome(self, pod: str) -> None:
        child = self._running(pod)
        doomed = child.started()
        if not doomed:
            raise NotStaged(f"no Chrome runs in {pod}")
        proctree.send(doomed, signal.SIGKILL)
        await children.gone(doomed)

    async def freeze(self, pod: str, what: Literal["pod", "chrome"] = "pod") -> None:
        child = self._running(pod)
        target = self._plane.find(pod)
        if what == "pod":
            stopped = child.freeze()
        else:
            stopped = child.started()
            proctree.send(stopped, signal.SIGSTOP)
        if not stopped:
            raise NotStaged(f"nothing to freeze in {pod}")
        target.frozen = True
        await _until(lambda: all(_is_stopped(pid) for pid in stopped), f"{pod} does not freeze")

    async def thaw(self, pod: str) -> None:
        target = self._plane.find(pod)
        if target.child is not None:
            target.child.thaw()
        target.frozen = False

    async def cut_off(self, pod: str) -> None:
        await self._netcut.cut(self._plane.find(pod).ip)

    async def mend(self, pod: str) -> None:
        await self._netcut.mend(self._plane.find(pod).ip)

    async def add_stale_endpoint(self) -> str:
        plane, settings = self._plane, self._plane.settings
        taken = plane.publisher.taken_ips()
        free = (f"{settings.network}.{n}" for n in DEAD_ADDRESSES if f"{settings.network}.{n}" not in taken)
        ip = next(free, None)
        if ip is None:
            raise NotStaged("no dead address is left", hint="farmctl down, then farmctl up")
        address = f"{ip}:{settings.agent_port}"
        if await _answers(ip, settings.agent_port):
            raise NotStaged(f"something listens on {address}: no stale endpoint can stand there")
        obj = slice_of(
            name=f"{settings.service}-stale-{ip.rpartition('.')[2]}",
            namespace=settings.namespace,
            service=settings.service,
            port=(settings.port_name, settings.agent_port),
            endpoints=[
                {"addresses": [ip], "conditions": {"ready": True, "serving": True, "terminating": False}}
            ],
        )
        obj["metadata"]["labels"][MANAGED_BY] = HAND_MADE
        plane.store.create(obj)
        await self._until_proxy_knows(address)
        return address

    def _remove_stale_endpoints(self) -> None:
        for obj in self._plane.store.all():
            if labels_of(obj).get(MANAGED_BY) == HAND_MADE:
                self._plane.store.delete(obj["metadata"]["name"])

    async def set_probes(self, period_s: float, threshold: int = 1, slice_delay_s: float = 0.0) -> None:
        self._plane.set_probes(period_s, threshold, slice_delay_s)

    async def make_pods_unready(self, starting_s: float | None) -> None:
        self._plane.starting_s = starting_s

    async def scale(self, pods: int) -> None:
        self._plane.scale(pods)

    async def resize(self, pods: int, scaling: Scaling | None) -> None:
        """As ``scale`` or ``autoscale``, and what ``restore`` goes back to from now on."""
        self._plane.scale(pods)
        self._plane.set_scaling(scaling)
        self._plane.setup = replace(self._plane.setup, pods=pods, scaling=scaling)

    async def autoscale(self, scaling: Scaling | None) -> None:
        self._plane.set_scaling(scaling)

    async def restart_proxy(self, how: Literal["kill", "term"] = "term", wait: bool = True) -> None:
        await self._plane.proxy.restart(how, wait=wait)

    async def set_proxy_env(self, env: dict[str, str]) -> None:
        self._plane.proxy.env = dict(env)
        self._proxy_changed = True
        await self._plane.proxy.restart("kill", wait=True)

    async def stop_api(self) -> None:
        await self._plane.api.stop()

    async def start_api(self) -> None:
        await self._plane.start_api()

    async def reclaim_node(self, node: str, notice_s: float) -> list[str]:
        """The node takes no new pod; its pods get SIGTERM now and SIGKILL after the notice."""
        plane = self._plane
        if node not in plane.settings.nodes:
            raise StageError(f"no node {node!r}", hint=f"nodes: {', '.join(plane.settings.nodes)}")
        plane.closed_nodes |= {node}
        lost = [pod for pod in plane.active() if pod.node == node]
        for pod in lost:
            plane.kubelet.delete(pod, notice_s)
        return [pod.name for pod in lost]

    async def restore(self) -> None:
        plane, setup = self._plane, self._plane.setup
        await self._netcut.clear()
        await plane.start_api()
        self._remove_stale_endpoints()
        plane.closed_nodes = frozenset()
        plane.starting_s = 0.0
        plane.set_probes(setup.probe_period_s, setup.probe_threshold, setup.slice_delay_s)
        plane.set_scaling(setup.scaling)
        plane.scale(setup.pods)
        for pod in list(plane.pods.values()):
            self._put_right(pod)
        if self._proxy_changed:
            plane.proxy.env = {}
            self._proxy_changed = False
            await plane.proxy.restart("kill", wait=True)
        await self._until_whole()

    def _put_right(self, pod: LivePod) -> None:
        if pod.frozen and pod.child is not None:
            pod.child.thaw()
            pod.frozen = False
        if pod.terminating or pod.unready_until is not None:
            self._plane.kubelet.delete(pod, 0.0)

    async def _until_whole(self) -> None:
        plane = self._plane
        await plane.proxy.until_ready()
        try:
            await _until(self._looks_whole, "", STRAGGLER_LIMIT_S)
            await self._until_all_free(STRAGGLER_LIMIT_S)
            return
        except NotStaged:
            for pod in plane.active():
                if not pod.ready:
                    plane.kubelet.delete(pod, 0.0)
        await _until(self._looks_whole, "the farm does not become whole again", WHOLE_LIMIT_S)
        await self._until_all_free(WHOLE_LIMIT_S)

    def _looks_whole(self) -> bool:
        plane = self._plane
        return (
            plane.settled()
            and all(pod.ready for pod in plane.pods.values())
            and len(plane.pods) == plane.wanted
        )

    async def _until_all_free(self, limit_s: float) -> None:
        """The proxy's word too: as many free pods as there are pods, and nobody held."""
        async with _limit(limit_s, "the proxy does not see every pod free again"):
            while not (self._all_free(await self._plane.proxy.status()) and await self._all_answer()):
                await asyncio.sleep(0.1)

    async def _all_answer(self) -> bool:
        """The agents' own word: probe and proxy may not have heard yet of what was just broken."""
        asked = (self._plane.kubelet.asked(pod, paths.READYZ, TIMEOUT_S) for pod in self._plane.active())
        return all(await asyncio.gather(*asked))

    def _all_free(self, status: dict[str, Any] | None) -> bool:
        pool = ((status or {}).get("pools") or {}).get(self._plane.settings.pool)
        if pool is None or pool["held"] or len(pool["pods"]) != len(self._plane.pods):
            return False
        return all(pod["state"] == "free" for pod in pool["pods"])

    async def _until_proxy_knows(self, address: str) -> None:
        """The proxy's watch has brought it; so a caller that comes now may be sent there."""
        async with _limit(SEEN_LIMIT_S, f"the proxy does not take up {address}"):
            while True:
                pools = ((await self._plane.proxy.status()) or {}).get("pools") or {}
                pods = pools.get(self._plane.settings.pool, {}).get("pods") or []
                if any(pod["address"] == address for pod in pods):
                    return
                await asyncio.sleep(0.02)

    def _running(self, pod: str) -> children.Child:
        child = self._plane.find(pod).child
        if child is None or child.exit_code is not None:
            raise NotStaged(f"{pod} runs no agent just now")
        return child


def _is_stopped(pid: int) -> bool:
    one = proctree.stat(pid)
    return one is None or one.state in "TtZX"


@asynccontextmanager
async def _limit(limit_s: float, message: str) -> AsyncIterator[None]:
    """A time limit whose end is a NotStaged with this message."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise NotStaged(message) from None


async def _until(holds: Callable[[], bool], message: str, limit_s: float = 5.0) -> None:
    async with _limit(limit_s, message):
        while not holds():
            await asyncio.sleep(0.02)


async def _answers(ip: str, port: int) -> bool:
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(ip, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
