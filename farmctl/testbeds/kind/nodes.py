"""The cluster's node containers: which there are, their addresses, and commands inside them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from farmctl.images.engines import Engine

CLUSTER_LABEL = "io.x-k8s.kind.cluster"
ROLE_LABEL = "io.x-k8s.kind.role"


@dataclass(frozen=True, slots=True)
class Node:
    """``address`` is "" while the container does not run."""

    name: str
    role: str  # control-plane or worker
    running: bool
    address: str


def listed(engine: Engine, cluster: str) -> list[Node]:
    """Every node container of ``cluster``, running or not, the control plane first."""
    names = engine.run(
        "ps", "-a", "--filter", f"label={CLUSTER_LABEL}={cluster}", "--format", "{{.Names}}"
    ).stdout.split()
    if not names:
        return []
    found = [_node(raw) for raw in json.loads(engine.run("container", "inspect", *names).stdout)]
    return sorted(found, key=lambda node: (node.role, node.name))


def _node(raw: Mapping[str, dict]) -> Node:  # type: ignore[type-arg]
    networks = raw["NetworkSettings"].get("Networks") or {}
    address = next((network.get("IPAddress") or "" for network in networks.values()), "")
    running = bool(raw["State"]["Running"])
    role = raw["Config"]["Labels"][ROLE_LABEL]
    return Node(str(raw["Name"]).lstrip("/"), role, running, address if running else "")


def sh(engine: Engine, node: str, script: str) -> str:
    """Run a shell script in the node; its stdout. Raises StageError with what it printed."""
    return engine.run("exec", "-i", node, "sh", "-euc", script, timeout_s=300).stdout
