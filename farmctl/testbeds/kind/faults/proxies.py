"""Ends the proxy and has a new one: one at a time, as a scenario about a proxy's end needs it.

A Deployment makes a successor at once, and while the old one drains callers would go to the new one: what a draining
proxy says to a caller would never be seen. So a proxy that is asked to stop is taken away without a successor until it
has gone, and the door leads to it even when it is no longer ready.
"""

from farmctl.testbeds.kind.api import pod_status
from farmctl.testbeds.kind.api.limits import until
from farmctl.testbeds.kind.api.objects import PROXY, PROXY_PODS, Api
from farmctl.testbeds.kind.cluster.containers import Containers
from farmctl.testbeds.kind.faults.deployments import Deployments

DOOR = "door"
TOLD_S = 10.0
DRAIN_S = 960.0  # the pod's own grace, at least the longest lease


class Proxies:
    def __init__(self, api: Api, containers: Containers, deployments: Deployments) -> None:
        self._api, self._containers, self._deployments = api, containers, deployments

    async def uids(self) -> frozenset[str]:
        return frozenset(raw["metadata"]["uid"] for raw in await self._api.pods(PROXY_PODS))

    async def kill(self, uids: frozenset[str]) -> None:
        """SIGKILL of each of these, and no grace for the pod; the Deployment makes another."""
        for raw in await self._api.pods(PROXY_PODS):
            if raw["metadata"]["uid"] in uids:
                await self._containers.kill(pod_status.place(raw))
                await self._api.delete_pod(raw["metadata"]["name"], raw["metadata"]["uid"], grace_s=0)

    async def end_draining(self) -> None:
        """SIGKILL of those that were told to stop and are still there."""
        there = await self._api.pods(PROXY_PODS)
        await self.kill(frozenset(raw["metadata"]["uid"] for raw in there if pod_status.going(raw)))

    async def take_away(self) -> None:
        """No proxy at all, and none to come. Raises NotStaged.

        First none is wanted, then those there are die: else each death would bring another of the old settings.
        """
        await self._deployments.replicas(PROXY, 0)
        await self._deployments.until_observed(PROXY)
        await self.kill(await self.uids())
        await until(self._none, "the proxy is gone", TOLD_S)

    async def tell(self) -> None:
        """SIGTERM, and no successor yet. Returns when the pod is told. Raises NotStaged."""
        await self._lead_to_unready(wanted=True)
        await self._deployments.replicas(PROXY, 0)

        async def told() -> bool:
            return all(pod_status.going(raw) for raw in await self._api.pods(PROXY_PODS))

        await until(told, "the proxy is told to stop", TOLD_S)

    async def succeed(self) -> None:
        """Wait until the old one has gone, then have a new one. Raises NotStaged."""
        await until(self._none, "the draining proxy ends", DRAIN_S)
        await self.put_back()

    async def put_back(self) -> None:
        """As many as there should be, and a door that leads to none that is not ready."""
        await self._deployments.replicas(PROXY, 1)
        await self._lead_to_unready(wanted=False)
        await self._deployments.until_proxy_serves()

    async def _none(self) -> bool:
        return not await self._api.pods(PROXY_PODS)

    async def _lead_to_unready(self, *, wanted: bool) -> None:
        await self._api.patch_service(DOOR, {"spec": {"publishNotReadyAddresses": wanted}})
