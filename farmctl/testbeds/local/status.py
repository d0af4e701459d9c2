"""What `farmctl status` looks at on the local testbed."""

from typing import Any

from farmctl.testbeds.local.testbed import LocalTestbed
from farmctl.testbeds.looking import NodeSeen, Told, asked


class LocalLook:
    kind, kubectl = "local", ""

    def __init__(self, testbed: LocalTestbed) -> None:
        self._testbed = testbed
        self.door, self.admin = testbed.door, testbed.admin
        self.overrides = testbed.overrides

    async def told(self) -> Told:
        return Told(await self._testbed.pods(), await self._testbed.readiness())

    async def proxy(self) -> dict[str, Any] | None:
        return await asked(self.admin)

    async def nodes(self) -> list[NodeSeen]:
        return []
