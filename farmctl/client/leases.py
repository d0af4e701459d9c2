"""A lease by name for as long as a block lasts: several connections to one pod, with renewal.

The block's end gives the pod back; so does the lease's own limit, and no use of it in time.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from farmwire import paths
from farmwire.launch_options import LaunchOptions

from farmctl.client.endpoints import NO_OPTIONS, LeaseOptions, http_url
from farmctl.client.errors import FarmError, from_answer
from farmctl.client.transport import limit, mapped


@dataclass(slots=True)
class Lease:
    """``browser_ws`` goes to Playwright or Puppeteer, ``http`` to anything that speaks Chrome's HTTP."""

    id: str
    pod: str
    label: str
    expires_at: str | float
    http: str
    browser_ws: str
    _door: str
    _lease_options: LeaseOptions
    _session: aiohttp.ClientSession

    async def renew(self, max_s: float) -> dict[str, Any]:
        """Let the lease last ``max_s`` seconds from now (within the farm's ceiling); return its state."""
        told = await self._ask("POST", f"/{self.id}/renew", {"max": max_s})
        self.expires_at = told.get("expires_at", self.expires_at)
        return told

    async def state(self) -> dict[str, Any]:
        """Return what the door says of this lease, its end reason for five minutes after its end included."""
        return await self._ask("GET", f"/{self.id}")

    async def end(self) -> None:
        """Give the pod back now; once more is harmless."""
        await self._ask("DELETE", f"/{self.id}")

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        url = http_url(self._door, paths.LEASES + path)
        return await _ask(self._session, self._door, method, url, self._lease_options, body)


@asynccontextmanager
async def lease(
    door: str,
    *,
    token: str = "",
    pool: str = "",
    hold_s: float | None = None,
    max_s: float | None = None,
    label: str = "",
    launch: LaunchOptions = NO_OPTIONS,
) -> AsyncIterator[Lease]:
    """Yield a Lease (POST /leases). Raises Refused, JobLost or DoorUnreachable."""
    lease_options = LeaseOptions(
        token=token, pool=pool, hold_s=hold_s, max_s=max_s, label=label, launch=launch
    )
    async with aiohttp.ClientSession(timeout=limit(hold_s)) as session:
        told = await _ask(session, door, "POST", http_url(door, paths.LEASES, lease_options), lease_options)
        given = Lease(
            id=told["id"],
            pod=told["pod"],
            label=told.get("label", ""),
            expires_at=told["expires_at"],
            http=told["urls"]["http"],
            browser_ws=told["urls"]["browser_ws"],
            _door=door,
            _lease_options=lease_options,
            _session=session,
        )
        try:
            yield given
        finally:
            # The farm ends the lease by itself should the door be gone now.
            with suppress(FarmError):
                await given.end()


async def _ask(
    session: aiohttp.ClientSession,
    door: str,
    method: str,
    url: str,
    lease_options: LeaseOptions,
    body: object = None,
) -> dict[str, Any]:
    async with (
        mapped(door),
        session.request(method, url, json=body, headers=lease_options.headers()) as answer,
    ):
        text = await answer.read()
        if answer.status >= 300:
            raise from_answer(answer.status, text, answer.headers.get("Retry-After"))
        told: dict[str, Any] = await answer.json(content_type=None) if text else {}
        return told
