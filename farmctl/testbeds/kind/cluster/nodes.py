"""The cluster's node containers: which there are, their addresses, commands inside them, and bringing back stopped ones.

podman gives a restarted container another address, which breaks the routes to its pods: it is connected again under
its old one before it starts.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farmctl.errors import StageError
from farmctl.images.engines import Engine
from farmctl.testbeds.kind.cluster.cluster_spec import FENCE_IN_NODE

CLUSTER_LABEL = "io.x-k8s.kind.cluster"
ROLE_LABEL = "io.x-k8s.kind.role"
NETWORK = "kind"
SECCOMP_FOLDER = "/var/lib/kubelet/seccomp"  # the kubelet's own; it outlives a node's restart
TAKEN = ("address already in use", "port is already allocated", "ports are not available")


@dataclass(frozen=True, slots=True)
class Node:
    """``address`` is "" while the container does not run; ``fence`` is the file of this machine that farmctl let the
    node mount, "" where somebody else made it.
    """

    name: str
    role: str  # control-plane or worker
    running: bool
    address: str
    fence: str = ""
    paused: bool = False


def listed(engine: Engine, cluster: str) -> list[Node]:
    """Every node container of ``cluster``, running or not, the control plane first."""
    names = engine.run(
        "ps", "-a", "--filter", f"label={CLUSTER_LABEL}={cluster}", "--format", "{{.Names}}"
    ).stdout.split()
    if not names:
        return []
    found = [node(raw) for raw in json.loads(engine.run("container", "inspect", *names).stdout)]
    return sorted(found, key=lambda each: (each.role, each.name))


def node(raw: Mapping[str, Any]) -> Node:
    """Read one container as `inspect` shows it."""
    state = raw["State"]
    running = bool(state["Running"]) or bool(state.get("Paused"))
    networks = raw["NetworkSettings"].get("Networks") or {}
    address = next((network.get("IPAddress") or "" for network in networks.values()), "")
    return Node(
        name=str(raw["Name"]).lstrip("/"),
        role=raw["Config"]["Labels"][ROLE_LABEL],
        running=running,
        address=address if running else "",
        fence=next(
            (
                str(each["Source"])
                for each in raw.get("Mounts") or ()
                if each.get("Destination") == FENCE_IN_NODE
            ),
            "",
        ),
        paused=bool(state.get("Paused")),
    )


def start_stopped(engine: Engine, nodes: Iterable[Node], addresses: Mapping[str, str]) -> list[str]:
    """Start what is stopped or paused, under its old address where the engine allows; the names of those started."""
    started = []
    for each in nodes:
        if each.paused:
            engine.run("unpause", each.name)
        elif not each.running:
            readdress(engine, each.name, addresses.get(each.name, ""))
            start(engine, each.name)
        else:
            continue
        started.append(each.name)
    return started


def start(engine: Engine, name: str) -> None:
    """Raises StageError; the usual cause is a port that somebody took while the node was down."""
    try:
        engine.run("start", name, timeout_s=120)
    except StageError as error:
        taken = any(word in str(error) for word in TAKEN)
        hint = (
            "see who has the port: ss -ltnp; free it, then farmctl up"
            if taken
            else f"{engine.name} logs {name}"
        )
        raise StageError(f"the node {name} does not start: {error}", hint=hint) from error


def readdress(engine: Engine, name: str, address: str) -> None:
    """Give a stopped container its old address again. docker keeps addresses out of our hands: left to its choice."""
    if not address or engine.name != "podman":
        return
    engine.run("network", "disconnect", NETWORK, name, check=False)
    if engine.run("network", "connect", "--ip", address, NETWORK, name, check=False).returncode != 0:
        # Another container has it by now: any address will do, the routes follow.
        engine.run("network", "connect", NETWORK, name)


def has_network(engine: Engine) -> bool:
    return engine.run("network", "inspect", NETWORK, check=False).returncode == 0


def drop_network(engine: Engine) -> None:
    """Remove kind's network unless a container is on it, a stopped one too: docker would remove it from under that one,
    which then starts never again. kind makes it again when it needs it.
    """
    if not engine.run("ps", "-aq", "--filter", f"network={NETWORK}").stdout.split():
        engine.run("network", "rm", NETWORK, check=False)


def sh(engine: Engine, name: str, script: str) -> str:
    """Run a shell script in the node; its stdout. Raises StageError with what it printed."""
    return engine.run("exec", "-i", name, "sh", "-euc", script, timeout_s=300).stdout


def put_file(engine: Engine, there: Iterable[Node], target: str, source: Path) -> None:
    """Put a file of ours into each node, whatever is there of that name. Raises StageError."""
    script = f"mkdir -p {target.rpartition('/')[0]}; cat > {target}.new; mv {target}.new {target}"
    for node in there:
        engine.run("exec", "-i", node.name, "sh", "-euc", script, stdin=source.read_bytes())


def refuse_foreign(cluster: str, nodes: Iterable[Node], fence: Path) -> None:
    """Raises StageError when a cluster of this name is there that farmctl did not make, or made for a farm whose state
    is in another folder than ``fence``. One whose state is lost is nobody's farm any more, and ours to remove.
    """
    fences = {each.fence for each in nodes}
    if "" in fences:
        raise StageError(
            f"there is a kind cluster {cluster!r} that farmctl did not make",
            hint=f"farmctl up --testbed kind --name another, or farmctl up --context kind-{cluster}",
        )
    for other in map(Path, sorted(fences)):
        if other.exists() and other.resolve() != fence.resolve():
            state = other.parent.parent
            raise StageError(
                f"the kind cluster {cluster!r} is that of a farm whose state is in {state}",
                hint=f"FARMCTL_STATE={state} farmctl down, or farmctl up --testbed kind --name another",
            )
