"""The local testbed as scenarios see it: every verb is a call to the supervisor, logs are read from its folder."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

import msgspec

from farmctl.testbeds.base import NoFarm, NotStaged, Pod, Readiness, Scaling, Setup
from farmctl.testbeds.local.control_client import ControlClient
from farmctl.testbeds.local.processes import netcut
from farmctl.testbeds.local.state import PROXY_LOG, StateFolder

CONNECT_S = 1.0
NO_ROLLOUT = "no Deployment is rolled out here: the testbed starts its pods itself"
NO_NODES = "nodes are names here: there is no machine to lose and to bring back"


class LocalTestbed:
    kind = "local"
    pages_host = "127.0.0.1"

    def __init__(self, folder: StateFolder, state: dict[str, Any]) -> None:
        settings = state["settings"]
        self._folder = folder
        self._client = ControlClient(folder.socket)
        self.namespace: str = settings["namespace"]
        self.door = f"http://{settings['door']}"
        self.admin = f"http://{settings['admin']}"
        self.api: str = state["api"]
        self.overrides = msgspec.convert(settings["setup"], Setup).overrides
        reason = netcut.reason_against()
        self.cannot: dict[str, str] = {"roll_out": NO_ROLLOUT, "return_nodes": NO_NODES}
        if reason:
            self.cannot["cut_off"] = reason

    @classmethod
    async def connect(cls, folder: StateFolder) -> "LocalTestbed":
        """Raises NoFarm when none runs on this state folder."""
        try:
            return cls(folder, await ControlClient(folder.socket).state())
        except NoFarm:
            if folder.settings.exists() and not folder.supervised():
                raise NoFarm(crashed=True) from None
            raise

    async def state(self) -> dict[str, Any]:
        """All that the supervisor says of itself (for `farmctl status`)."""
        return await self._client.state()

    async def setup(self) -> Setup:
        return msgspec.convert((await self.state())["setup"], Setup)

    async def pods(self) -> list[Pod]:
        return msgspec.convert(await self._client.pods(), list[Pod])

    async def readiness(self) -> list[Readiness]:
        return msgspec.convert((await self.state())["readiness"], list[Readiness])

    async def listens(self, pod: Pod) -> bool:
        return await accepts(pod.address)

    async def pod_logs_since(self, mark: float) -> dict[str, list[str]]:
        logs = self._folder.pod_logs
        return {name: logs.since(name, mark) for name in logs.names()}

    async def proxy_log_since(self, mark: float) -> list[str]:
        """The proxy's log lines (JSON) since wall-clock ``mark``, of all its starts."""
        return self._folder.logs.since(PROXY_LOG, mark)

    async def kill(self, pod: str, *, grace_s: float = 0.0) -> float:
        at = time.time()
        await self._client.verb("kill", pod=pod, grace_s=grace_s)
        return at

    async def kill_chrome(self, pod: str) -> None:
        await self._client.verb("kill_chrome", pod=pod)

    async def freeze(self, pod: str, *, what: Literal["pod", "chrome"] = "pod") -> None:
        await self._client.verb("freeze", pod=pod, what=what)

    async def thaw(self, pod: str) -> None:
        await self._client.verb("thaw", pod=pod)

    async def cut_off(self, pod: str) -> None:
        await self._client.verb("cut_off", pod=pod)

    async def mend(self, pod: str) -> None:
        await self._client.verb("mend", pod=pod)

    async def add_stale_endpoint(self) -> str:
        address: str = await self._client.verb("add_stale_endpoint")
        return address

    async def set_probes(self, *, period_s: float, threshold: int = 1, slice_delay_s: float = 0.0) -> None:
        await self._client.verb(
            "set_probes", period_s=period_s, threshold=threshold, slice_delay_s=slice_delay_s
        )

    async def make_pods_unready(self, starting_s: float | None) -> None:
        await self._client.verb("make_pods_unready", starting_s=starting_s)

    async def scale(self, pods: int) -> None:
        await self._client.verb("scale", pods=pods)

    async def roll_out(self) -> None:
        raise NotStaged(NO_ROLLOUT)

    async def resize(self, pods: int, scaling: Scaling | None) -> None:
        """As a person scales: also what ``restore`` goes back to."""
        await self._client.verb("resize", pods=pods, scaling=scaling and asdict(scaling))

    async def autoscale(self, scaling: Scaling | None) -> None:
        await self._client.verb("autoscale", scaling=scaling and asdict(scaling))

    async def restart_proxy(self, *, how: Literal["kill", "term"] = "term", wait: bool = True) -> None:
        await self._client.verb("restart_proxy", how=how, wait=wait)

    async def set_proxy_env(self, env: dict[str, str]) -> None:
        await self._client.verb("set_proxy_env", env=env)

    async def stop_api(self) -> None:
        await self._client.verb("stop_api")

    async def start_api(self) -> None:
        await self._client.verb("start_api")

    async def reclaim_node(self, node: str, *, notice_s: float) -> Sequence[str]:
        names: list[str] = await self._client.verb("reclaim_node", node=node, notice_s=notice_s)
        return names

    async def node_is_lost(self, node: str) -> bool:
        raise NotStaged(f"{node}: {NO_NODES}")

    async def return_nodes(self) -> Sequence[str]:
        raise NotStaged(NO_NODES)

    async def restore(self) -> None:
        await self._client.verb("restore")


async def accepts(address: str) -> bool:
    """Whether anything accepts a connection at ``host:port`` of this machine."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
