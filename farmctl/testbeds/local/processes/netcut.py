"""Makes packets of an address vanish, by a firewall table that is this testbed's alone and goes with it.

Packets are dropped on their way in, so the sender sees no error: neither FIN nor RST nor "operation not permitted".
"""

import asyncio
import os
import shutil

from farmctl.testbeds.base import NotStaged

SEARCH = "/usr/sbin:/sbin:/usr/bin:/bin"


def reason_against() -> str:
    """Why this machine cannot do it; empty when it can, as far as is seen without trying."""
    if os.geteuid() != 0:
        return "packets can be dropped by root only"
    if shutil.which("nft", path=SEARCH) is None:
        return "nft is not installed (apt-get install -y nftables)"
    return ""


class Netcut:
    def __init__(self, token: str) -> None:
        self._table = f"farmctl_{token}"
        self.ips: set[str] = set()

    async def cut(self, ip: str) -> None:
        """Raises NotStaged where the machine does not allow it."""
        if reason := reason_against():
            raise NotStaged(f"cannot cut {ip} off: {reason}")
        await self._apply(self.ips | {ip})

    async def mend(self, ip: str) -> None:
        if ip in self.ips:
            await self._apply(self.ips - {ip})

    async def clear(self) -> None:
        """Remove the table, also one that an earlier supervisor left. Harmless when there is none."""
        self.ips = set()
        if not reason_against():
            await _nft(f"add table ip {self._table}\ndelete table ip {self._table}\n")

    async def _apply(self, ips: set[str]) -> None:
        table = self._table
        rules = "".join(
            f"add rule ip {table} input ip {side} {ip} drop\n"
            for ip in sorted(ips)
            for side in ("daddr", "saddr")
        )
        script = (
            f"add table ip {table}\ndelete table ip {table}\nadd table ip {table}\n"
            f"add chain ip {table} input {{ type filter hook input priority 0; policy accept; }}\n{rules}"
        )
        if error := await _nft(script):
            raise NotStaged(f"cannot drop packets here: {error}")
        self.ips = ips


async def _nft(script: str) -> str:
    """Run one transaction; return its error, or empty."""
    program = shutil.which("nft", path=SEARCH) or "nft"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, "-f", "-", stdin=pipe, stdout=pipe, stderr=pipe)
    _, err = await process.communicate(script.encode())
    return "" if process.returncode == 0 else (err.decode().strip().splitlines() or ["nft failed"])[0]
