"""The farm's two Deployments: their settings changed and put back, their replicas, and when a change has come through.

Never asked for availability: a leased pod is not ready, so a farm in use looks like a failed rollout.
A pod is fine when it is ready, or when the proxy has it in use.
"""

import asyncio
import math
import time
from collections.abc import Mapping

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.api import pod_status
from farmctl.testbeds.kind.api.admin import Admin
from farmctl.testbeds.kind.api.limits import until
from farmctl.testbeds.kind.api.objects import BROWSERS, PROXY, PROXY_PODS, Api, Json
from farmctl.testbeds.kind.faults.fake_objects import UNREADY
from farmctl.testbeds.kind.faults.records import FaultsFile, container_of, undone
from farmctl.testbeds.kind.install.rolling import STRATEGY, Rollout, change_to
from farmctl.testbeds.kind.install.rollout_wait import Picture, in_use, is_observed, picture, troubles

JSON_PATCH = "application/json-patch+json"
ENV_PATH = "/spec/template/spec/containers/0/env"
PROBE_PATH = "/spec/template/spec/containers/0/readinessProbe"
ROLLED = "farmctl.dev/rolled"  # stays: taking it away would be another rollout, and nothing reads it
SCALED_S = 60.0  # controllers that were cut off from the API server look again after 13 s at most
ROLLED_OUT_S = 180.0
PROXY_S = 90.0
SERVES_IN_A_ROW = 4  # new connections that all met a proxy that is ready: the node's rules lead nowhere else


class Deployments:
    def __init__(self, api: Api, admin: Admin, faults: FaultsFile) -> None:
        self._api, self._admin, self._faults = api, admin, faults

    async def get(self, name: str) -> Json:
        """Raises StageError when it is not there."""
        found = await self._api.deployment(name)
        if found is None:
            raise StageError(f"the Deployment {name} is not there", hint="farmctl up repairs it")
        return found

    async def set_env(self, name: str, env: Mapping[str, str]) -> bool:
        """Put settings over those the Deployment had before any fault; whether that changes anything."""
        deployment = await self.get(name)
        self._faults.remember(deployment)
        before: list[Json] = self._faults.read().before[name]["env"] or []
        wanted = [each for each in before if each["name"] not in env]
        wanted += [{"name": key, "value": value} for key, value in sorted(env.items())]
        if container_of(deployment).get("env") == wanted:
            return False
        await self._patch(name, [{"op": "add", "path": ENV_PATH, "value": wanted}])
        return True

    async def set_probe(self, period_s: float, threshold: int) -> bool:
        """The pods' readiness probe, in whole seconds as the API has them; whether that changes anything."""
        deployment = await self.get(BROWSERS)
        probe = dict(container_of(deployment)["readinessProbe"])
        wanted = {**probe, "periodSeconds": max(1, math.ceil(period_s)), "failureThreshold": threshold}
        if wanted == probe:
            return False
        self._faults.remember(deployment)
        await self._patch(BROWSERS, [{"op": "replace", "path": PROBE_PATH, "value": wanted}])
        return True

    async def put_back(self) -> list[str]:
        """Undo what the record tells of; the names of the Deployments that were changed by it."""
        changed = []
        for name, before in self._faults.read().before.items():
            if patch := undone(await self.get(name), before):
                await self._patch(name, patch)
                changed.append(name)
        return changed

    async def replicas(self, name: str, count: int) -> None:
        await self._api.patch_deployment(name, {"spec": {"replicas": count}})

    async def until_observed(self, name: str) -> None:
        """Its controller has acted on what was last asked for. Raises NotStaged.

        Controllers that were cut off from the API server come back late: until then a pod that dies is replaced by
        one of the old settings.
        """

        async def observed() -> bool:
            return is_observed(await self.get(name))

        await until(observed, f"the controllers have seen what the Deployment {name} is to be", SCALED_S)

    async def counts(self) -> tuple[int, int]:
        """The wanted and the existing browser pods, as an HPA reads them."""
        found = await self.get(BROWSERS)
        return int(found["spec"]["replicas"]), int(found.get("status", {}).get("replicas", 0))

    async def scale(self, pods: int) -> None:
        """The pods beyond those there are go to the Deployment of the never-ready ones, if there is one.

        Returns when the controllers have made them, or told them to go; a leased one goes later.
        """
        extra = await self._api.deployment(UNREADY)
        ordinary = min(pods, (await self.counts())[0]) if extra is not None else pods
        await self.replicas(BROWSERS, ordinary)
        if extra is not None:
            await self.replicas(UNREADY, pods - ordinary)

        async def scaled() -> bool:
            return sum(not pod_status.going(raw) for raw in await self._api.pods()) == pods

        await until(scaled, f"{pods} pods are there, or the rest was told to go", SCALED_S)

    async def until_rolled_out(self) -> None:
        """Each pod is of the newest revision, or in use by a session, and the proxy knows them.

        Raises NotStaged with what is in the way.
        """
        seen: list[Picture] = []

        async def rolled_out() -> bool:
            seen[:] = [await self.picture()]
            return seen[0].served and knows(await self._admin.pool(), await self._api.pods())

        try:
            await until(rolled_out, "every pod has the new settings", ROLLED_OUT_S)
        except StageError as error:
            trouble = "; ".join(str(part) for one in seen for part in (one, *one.trouble))
            raise type(error)(f"{error}: {trouble}") from error

    async def roll_out(self, rollout: Rollout) -> None:
        """A new annotation, walked through the farm. Returns when only new pods take callers. Raises NotStaged."""
        note = {"metadata": {"annotations": {ROLLED: f"{time.time():.3f}"}}}
        await self._api.patch_deployment(BROWSERS, {"spec": {"template": note}})

        async def walked() -> bool:
            seen = await self.picture()
            await asyncio.to_thread(
                rollout.go_on, wanted=seen.wanted, new=seen.new, fine=seen.fine, old=seen.old
            )
            return seen.served

        try:
            await until(walked, "only new pods take callers", ROLLED_OUT_S)
        finally:
            await asyncio.to_thread(rollout.leave)

    async def usual_strategy(self) -> None:
        """What a rollout that was broken off left is put back."""
        rolling = (await self.get(BROWSERS))["spec"]["strategy"]["rollingUpdate"]
        if rolling["maxUnavailable"] != STRATEGY:
            await self._api.patch_deployment(BROWSERS, change_to(STRATEGY))

    async def picture(self) -> Picture:
        """One look at Deployments, ReplicaSets and pods, and at what the proxy has in use."""
        found = [_named(await self.get(name), "Deployment") for name in (BROWSERS, PROXY)]
        found += [_named(each, "ReplicaSet") for each in await self._api.replica_sets("")]
        found += [_named(each, "Pod") for each in await self._api.pods()]
        return picture(found, in_use({"pools": {"": await self._admin.pool() or {"pods": []}}}))

    async def until_proxy_serves(self, *, not_of: frozenset[str] = frozenset()) -> None:
        """One proxy is left, none of those (by UID), it is ready, and the door leads to it. Raises NotStaged."""
        in_a_row, lack = 0, ""

        async def serves() -> bool:
            nonlocal in_a_row, lack
            lack = await self._proxy_lacks(not_of)
            in_a_row = 0 if lack else in_a_row + 1
            return in_a_row >= SERVES_IN_A_ROW

        try:
            await until(serves, "a new proxy is ready and the only one", PROXY_S)
        except NotStaged as error:
            raise NotStaged(f"{error}: {lack or 'the API server is away'}") from error

    async def _proxy_lacks(self, not_of: frozenset[str]) -> str:
        """What is missing until the one new proxy serves; "" when nothing is."""
        deployment, pods = await self.get(PROXY), await self._api.pods(PROXY_PODS)
        if not is_observed(deployment) or deployment["status"].get("updatedReplicas") != len(pods):
            return f"the controllers are not done with {len(pods)} proxies"
        if len(pods) != 1 or pods[0]["metadata"]["uid"] in not_of:
            return f"{len(pods)} proxies are there"
        if not pod_status.is_ready(pods[0]):
            return "; ".join(["its pod is not ready", *troubles(pods[0])])
        if not await self._admin.ready():
            return "its admin port does not say ready"
        return "" if await self._admin.opens() else "its door does not open"

    async def _patch(self, name: str, patch: list[Json]) -> None:
        await self._api.patch_deployment(name, patch, JSON_PATCH)


def knows(pool: Json | None, pods: list[Json]) -> bool:
    """Whether the proxy's pool is these pods and no other, none of them unready."""
    told = {pod["uid"]: pod["state"] for pod in (pool or {"pods": []})["pods"]}
    return told.keys() == {raw["metadata"]["uid"] for raw in pods} and "unready" not in told.values()


def _named(item: Json, kind: str) -> Json:
    """The members of a list carry no kind of their own."""
    return {**item, "kind": kind}
