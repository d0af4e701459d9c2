"""One page for one request: POST /render at the door. An answer is whole or it is an error, never a part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from farmwire import headers, paths

from farmctl.client.endpoints import LeaseOptions, http_url
from farmctl.client.errors import from_answer
from farmctl.client.transport import limit, mapped, shared_or_own


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page as asked for: bytes of ``content_type``, and which lease made it."""

    body: bytes
    content_type: str
    lease: str
    pod: str  # namespace/name/uid
    waited_ms: int
    dials: int

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


async def render(
    door: str,
    url: str,
    *,
    options: Mapping[str, Any] | None = None,
    timeout_s: float = 30.0,
    token: str = "",
    pool: str = "",
    hold_s: float | None = None,
    max_s: float | None = None,
    label: str = "",
    session: aiohttp.ClientSession | None = None,
) -> Rendered:
    """Render ``url`` on a leased pod. ``options`` are /render's own: format, wait_until, wait_for, full_page,
    viewport, headers, cookies, user_agent, block, script.

    Raises PageFailed (the page's own fault), Refused, JobLost or DoorUnreachable.
    """
    lease_options = LeaseOptions(token=token, pool=pool, hold_s=hold_s, max_s=max_s, label=label)
    job = {**(options or {}), "url": url, "timeout_s": timeout_s}
    async with shared_or_own(session) as http, mapped(door):
        answer = await http.post(
            http_url(door, paths.RENDER, lease_options),
            json=job,
            headers=lease_options.headers(),
            timeout=limit(hold_s, timeout_s),
        )
        async with answer:
            body = await answer.read()
            if answer.status != 200:
                raise from_answer(answer.status, body, answer.headers.get("Retry-After"))
            return Rendered(
                body=body,
                content_type=answer.headers.get("Content-Type", ""),
                lease=answer.headers.get(headers.LEASE, ""),
                pod=answer.headers.get(headers.POD, ""),
                waited_ms=_number(answer.headers.get(headers.WAITED_MS)),
                dials=_number(answer.headers.get(headers.DIALS)),
            )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
