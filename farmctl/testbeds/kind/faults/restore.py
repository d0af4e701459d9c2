"""Makes a broken farm whole again, whatever was done to it and by whom, and waits until it is.

Everything is undone by what is found in nodes and in the API, in an order in which each step can work: nodes, packets
and processes, the control plane, then objects, then settings. The record of faults only adds what cannot be found.
"""

import asyncio
from contextlib import suppress

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.api import pod_status
from farmctl.testbeds.kind.api.admin import Admin, all_free
from farmctl.testbeds.kind.api.limits import again, until
from farmctl.testbeds.kind.api.objects import BROWSERS, PROXY, Api, Json
from farmctl.testbeds.kind.cluster.containers import Containers
from farmctl.testbeds.kind.faults import fake_objects
from farmctl.testbeds.kind.faults.controlplane import ControlPlane
from farmctl.testbeds.kind.faults.deployments import Deployments
from farmctl.testbeds.kind.faults.proxies import Proxies
from farmctl.testbeds.kind.faults.records import FaultsFile
from farmctl.testbeds.kind.faults.spot import Spot

WHOLE_S = 180.0
STRAGGLER_S = 40.0  # a pod that is still not free by then is replaced
AGAIN_S = 60.0  # each step may be done twice, and is, when the API server or the way into a node fails


class Wholeness:
    def __init__(
        self,
        *,
        api: Api,
        admin: Admin,
        containers: Containers,
        control: ControlPlane,
        deployments: Deployments,
        proxies: Proxies,
        spot: Spot,
        faults: FaultsFile,
    ) -> None:
        self._api, self._admin, self._containers = api, admin, containers
        self._control, self._deployments, self._proxies = control, deployments, proxies
        self._spot, self._faults = spot, faults

    async def restore(self, node_names: list[str], pods: int) -> None:
        """Back to ``pods`` free pods and one proxy. Raises StageError with what is still wrong."""
        was_set = BROWSERS in self._faults.read().before
        await self.undo(node_names, pods)
        if was_set:
            await self._deployments.until_rolled_out()
        await self._until_whole(pods)
        self._faults.clear()

    async def undo(self, node_names: list[str], pods: int) -> None:
        """Every fault, but wait for no pod."""
        await again(lambda: self._machines(node_names), AGAIN_S)
        await again(self._objects, AGAIN_S)
        await again(lambda: self._settings(pods), AGAIN_S)
        await self._proxy()

    async def _machines(self, node_names: list[str]) -> None:
        # With the API server cut off no node turns Ready; with its own node away it cannot be mended yet.
        with suppress(StageError):
            await self._control.start_api()
        await self._spot.bring_back()
        await self._containers.mend_all(node_names)
        await self._control.slices_late(0)
        await self._control.until_healthy()
        await self._control.until_nodes_ready()

    async def _objects(self) -> None:
        for each in fake_objects.stale_in(await self._api.slices()):
            await self._api.delete_slice(each["metadata"]["name"])
        await self._api.delete_deployment(fake_objects.UNREADY)

    async def _settings(self, pods: int) -> None:
        if PROXY in self._faults.read().before:
            await self._proxies.take_away()
        await self._proxies.end_draining()
        await self._deployments.put_back()
        await self._deployments.usual_strategy()
        await self._deployments.replicas(BROWSERS, pods)

    async def _proxy(self) -> None:
        """One proxy that serves. One that an outage has left unready, for whatever reason, is replaced."""
        try:
            await self._proxies.put_back()
        except StageError:
            await again(self._proxies.take_away, AGAIN_S)
            await self._proxies.put_back()

    async def _until_whole(self, pods: int) -> None:
        async def whole() -> bool:
            found = await self._api.pods()
            standing = len(found) == pods and all(map(_stands, found))
            return standing and all_free(await self._admin.pool(), pods)

        try:
            await until(whole, "", STRAGGLER_S)
        except NotStaged:
            await self._replace([raw for raw in await self._api.pods() if not _stands(raw)])
            await until(whole, f"{pods} pods are ready, and free for the proxy", WHOLE_S)
        # Ready and free is what API and proxy last heard. The next caller may be the first whom the way to a pod fails.
        await until(self._admin.lends, "the door gives out a lease", WHOLE_S)
        await until(whole, f"{pods} pods are ready, and free for the proxy, after a lease", WHOLE_S)

    async def _replace(self, stragglers: list[Json]) -> None:
        async with asyncio.TaskGroup() as group:
            for raw in stragglers:
                group.create_task(
                    self._api.delete_pod(raw["metadata"]["name"], raw["metadata"]["uid"], grace_s=0)
                )


def _stands(raw: Json) -> bool:
    return pod_status.is_ready(raw) and not pod_status.going(raw)
