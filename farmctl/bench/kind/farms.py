"""The farm that the kind benchmark measures: found, waited for until nobody uses it, and one pod of it replaced."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from farmctl.errors import StageError
from farmctl.testbeds.kind.api import doors
from farmctl.testbeds.kind.api.admin import Admin, all_free
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.state import KindFolder
from farmctl.testbeds.kind.testbed import KindTestbed

IDLE_S = 90.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Farm:
    """The farm that is measured, and kubectl for what a testbed has no verb for."""

    testbed: KindTestbed
    kubectl: Kubectl
    pods: int

    @classmethod
    async def connect(cls) -> "Farm":
        """Raises StageError when no farm of our own cluster is up here, or it is in use."""
        folder = KindFolder()
        testbed = await KindTestbed.connect(folder)
        there = folder.read()
        assert there is not None  # connected to it
        kubectl, _ = doors.opened(there, folder, lambda _step: None)
        made = cls(testbed, kubectl, (await testbed.setup()).pods)
        await until_idle(testbed.admin, made.pods)
        return made

    async def idle(self) -> None:
        await until_idle(self.testbed.admin, self.pods)


async def until(state: Callable[[], Awaitable[bool]], what: str, limit_s: float) -> None:
    """Ask until it holds. Raises StageError."""
    deadline = time.monotonic() + limit_s
    while not await state():
        if time.monotonic() > deadline:
            raise StageError(f"waited {limit_s:.0f} s in vain until {what}", hint="farmctl status")
        await asyncio.sleep(LOOK_S)


async def until_idle(admin: str, pods: int) -> None:
    """Every pod free, nobody held. Raises StageError when somebody uses the farm."""
    asked = Admin(admin)

    async def idle() -> bool:
        return all_free(await asked.pool(), pods)

    await until(idle, f"{pods} pods are free and nobody is held: is the farm in use?", IDLE_S)


async def replaced(farm: Farm) -> float:
    """Delete one pod as a person would; seconds until the proxy has its replacement free."""
    admin = Admin(farm.testbed.admin)
    before = await farm.testbed.pods()
    known = {pod.uid for pod in before}

    async def free() -> bool:
        pool = await admin.pool() or {"pods": []}
        return any(pod["uid"] not in known and pod["state"] == "free" for pod in pool["pods"])

    began = time.monotonic()
    words = ("delete", "pod", before[0].name, "-n", farm.testbed.namespace, "--wait=false")
    await asyncio.to_thread(farm.kubectl, *words)
    await until(free, "a replacement is free", IDLE_S)
    seconds = time.monotonic() - began
    await farm.idle()
    return seconds
