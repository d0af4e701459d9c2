"""A spot node is reclaimed: told with notice by a taint that no farm pod tolerates, then lost, and brought back.

The notice is what a cloud gives: its pods get SIGTERM at once. The loss is the node's end without a word, kubelet and
all. It comes back under its old address, with its routes and its fence, as another start of the same machine.
"""

import asyncio

from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.api import pod_status
from farmctl.testbeds.kind.api.limits import until
from farmctl.testbeds.kind.api.objects import Api, Json
from farmctl.testbeds.kind.cluster import cluster, nodes
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.state import KindFolder

TAINT = {"key": "farmctl.dev/reclaimed", "value": "now", "effect": "NoExecute"}
TOLD_S = 20.0
# Gone with the node's network, so there is nothing to undo.
SILENCE = "\n".join(f"iptables -w -I {chain} -j DROP" for chain in ("OUTPUT", "FORWARD", "INPUT"))


class Spot:
    def __init__(self, api: Api, folder: KindFolder, opened: Cluster) -> None:
        self._api, self._folder, self._cluster = api, folder, opened

    async def notice(self, node: str) -> list[str]:
        """Taint the node; the pods that are told to go. Raises NotStaged."""
        lost = [raw["metadata"]["name"] for raw in await self._on(node)]
        await self._taint(node, wanted=True)

        async def told() -> bool:
            return all(pod_status.going(raw) for raw in await self._on(node))

        await until(told, f"the pods on {node} are told to go", TOLD_S)
        return lost

    async def lose(self, node: str) -> None:
        """The node ends as a machine does whose power is cut: it says nothing more, then it is gone.

        (Killed processes would close their connections, and callers would learn of it by that.)
        """
        engine = self._cluster.engine
        await asyncio.to_thread(nodes.sh, engine, node, SILENCE)
        await asyncio.to_thread(engine.run, "kill", node)
        left = await asyncio.to_thread(nodes.listed, engine, self._cluster.shape.name)
        if any(each.name == node and each.running for each in left):
            raise NotStaged(f"the node {node} still runs")

    async def bring_back(self) -> list[str]:
        """Start what stopped, under the old addresses, wait until each node is Ready, take the taints off."""
        there = await asyncio.to_thread(nodes.listed, self._cluster.engine, self._cluster.shape.name)
        stopped = [each.name for each in there if not each.running or each.paused]
        if stopped:
            installed = self._folder.read()
            addresses = installed.addresses if installed is not None else {}
            await asyncio.to_thread(cluster.repair, self._cluster, there, addresses, lambda _: None)
            self._api.reconnect()
        for raw in await self._api.nodes():
            if _tainted(raw):
                await self._taint(raw["metadata"]["name"], wanted=False)
        return stopped

    async def _on(self, node: str) -> list[Json]:
        return [raw for raw in await self._api.pods() if pod_status.place(raw).node == node]

    async def _taint(self, node: str, *, wanted: bool) -> None:
        raw = next(each for each in await self._api.nodes() if each["metadata"]["name"] == node)
        others = [each for each in raw["spec"].get("taints") or () if each["key"] != TAINT["key"]]
        await self._api.patch_node(node, {"spec": {"taints": [*others, *([TAINT] if wanted else [])]}})


def _tainted(raw: Json) -> bool:
    return any(each["key"] == TAINT["key"] for each in raw["spec"].get("taints") or ())
