"""What the admin port needs to know of the proxy, and the JSON and text it makes of it."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from farmproxy import __version__
from farmproxy.core.snapshots import PoolView


class AdminView(Protocol):
    """The proxy as the admin port sees it; every member is cheap but ``snapshot``."""

    @property
    def services(self) -> Mapping[str, str]:
        """Pool name to Service name."""

    @property
    def listed(self) -> bool:
        """Whether every pool's EndpointSlices were listed once."""

    @property
    def door_open(self) -> bool:
        """Whether the door's socket takes connections."""

    @property
    def draining(self) -> bool:
        """Whether SIGTERM has come."""

    def watch_age_s(self) -> float:
        """Seconds since the API server last said anything, of the oldest watch."""

    def snapshot(self) -> Mapping[str, PoolView]:
        """Every pool in full."""

    def metrics_text(self) -> bytes:
        """The exposition of /metrics."""


def readiness(view: AdminView) -> tuple[bool, str]:
    """Whether new callers should come here, and why not, a line a check as Kubernetes' own components say it."""
    checks = {
        "listed": "" if view.listed else "the EndpointSlices were not listed yet",
        "door-open": "" if view.door_open else "the door is closed",
        "not-draining": "the proxy drains" if view.draining else "",
    }
    lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in checks.items()]
    ready = not any(checks.values())
    return ready, "\n".join((*lines, "ready" if ready else "not ready", ""))


def status_json(view: AdminView) -> bytes:
    """The body of /status."""
    pools: dict[str, dict[str, Any]] = {}
    for name, pool in view.snapshot().items():
        pools[name] = {
            "service": view.services.get(name, ""),
            "demand": pool.demand,
            "pods": pool.pods,
            "held": pool.held,
            "leases": pool.leases,
        }
    return msgspec.json.encode(
        {
            "version": __version__,
            "draining": view.draining,
            "watch_age_s": round(view.watch_age_s(), 3),
            "pools": pools,
        }
    )
