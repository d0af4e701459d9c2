"""What `farmctl status` looks at, whatever the kind of testbed: the control plane's word, the proxy's own, and the nodes.

Each is asked apart and may be away without the others: a look never waits for what does not answer.
"""

import json
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from farmwire import paths

from farmctl.testbeds.base import Pod, Readiness
from farmctl.testbeds.overrides import Overrides

ASK_LIMIT = aiohttp.ClientTimeout(total=2.0)


@dataclass(frozen=True, slots=True)
class Stray:
    """An endpoint that a slice says is ready, of no pod that there is. ``managed``: written by a controller."""

    address: str
    slice: str
    managed: bool


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """``running``: the engine's word, None where nobody asked an engine; ``ready``: the API's, None while it is away."""

    name: str
    running: bool | None
    ready: bool | None


@dataclass(frozen=True, slots=True)
class Told:
    """What the control plane says at one moment."""

    pods: list[Pod]
    readiness: list[Readiness]
    strays: tuple[Stray, ...] = ()


class Look(Protocol):
    """One farm to be looked at. ``kubectl`` is how a person asks its cluster, "" where there is none; ``overrides``
    are the settings that differ from the defaults.
    """

    kind: str
    door: str
    admin: str
    kubectl: str
    overrides: Overrides

    async def told(self) -> Told:
        """Raises StageError with the reason when the control plane does not say."""
        ...

    async def proxy(self) -> dict[str, Any] | None:
        """The proxy's /status, None while it does not answer."""
        ...

    async def nodes(self) -> list[NodeSeen]:
        """Of a cluster; empty where there are none, or nobody lets us see them."""
        ...


async def asked(admin: str, limit: aiohttp.ClientTimeout = ASK_LIMIT) -> dict[str, Any] | None:
    """The /status at ``admin`` (http://host:port), None when it gives none."""
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(admin + paths.STATUS) as answer,
        ):
            return parsed(await answer.text()) if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None


def parsed(text: str) -> dict[str, Any] | None:
    """What a proxy's /status said; None for what is no such answer."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("pools"), dict) else None
