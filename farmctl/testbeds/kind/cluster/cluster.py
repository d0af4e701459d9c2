"""The kind cluster itself: created, repaired, examined, removed.

Its kubeconfig lives in the state folder; the user's own context is never touched. kind's word that a cluster is up is
not taken: the nodes are asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from farmctl.errors import StageError
from farmctl.images.engines import Engine, kind_environment
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind.cluster import cluster_spec, network, nodes
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.programs import run
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.cluster.waiting import wait_for

CREATE_S = 900
READY_S = 330  # the kubelet waits up to 300 s before it starts again what has ended often of late
LOGS_HINT = "the nodes' logs are under {logs}; farmctl down, then up again"


@dataclass(frozen=True, slots=True)
class Cluster:
    engine: Engine
    kind: Path
    kubectl: Kubectl
    folder: KindFolder
    shape: Shape

    @property
    def size(self) -> int:
        return self.shape.workers + 1

    def run_kind(self, *words: str, timeout_s: float = 300) -> str:
        env = kind_environment(self.engine, self.folder.kubeconfig)
        return run([str(self.kind), *words], env=env, timeout_s=timeout_s)

    def nodes(self) -> list[nodes.Node]:
        return nodes.listed(self.engine, self.shape.name)


def ensure(cluster: Cluster, installed: Installed, say: Say) -> Installed:
    """Make the cluster run: created, or repaired, or left as it is. Returns the record with the nodes' addresses."""
    there = cluster.nodes()
    nodes.refuse_foreign(cluster.shape.name, there, cluster.folder.fence)
    if there and installed.phase == "creating":
        say("removing what an interrupted run left")
        remove(cluster)
        there = []
    if not there:
        installed = create(cluster, installed, say)
    else:
        repair(cluster, there, installed.addresses, say)
    phase = "installing" if installed.phase == "creating" else installed.phase
    addresses = {each.name: each.address for each in cluster.nodes()}
    return cluster.folder.write(msgspec.structs.replace(installed, phase=phase, addresses=addresses))


def create(cluster: Cluster, installed: Installed, say: Say) -> Installed:
    """Create the nodes, wire them, and wait until each is Ready; the record with what was made. What a failure leaves
    is removed, its logs kept.
    """
    folder = cluster.folder
    made_network = installed.made_network or not nodes.has_network(cluster.engine)
    installed = msgspec.structs.replace(installed, phase="creating", addresses={}, made_network=made_network)
    folder.write(installed)
    write_files(cluster)
    say(f"creating {cluster.size} node{'s' * (cluster.size > 1)} from {cluster.shape.node_image}")
    try:
        cluster.run_kind(
            "create", "cluster", "--config", str(folder.config), "--image", cluster.shape.node_image,
            "--kubeconfig", str(folder.kubeconfig), "--retain", "--wait", "0s", timeout_s=CREATE_S,
        )  # fmt: skip
        connect(cluster, say)
    except StageError as error:
        export_logs(cluster, say)
        remove(cluster)
        raise StageError(
            f"the cluster could not be created: {error}", hint=LOGS_HINT.format(logs=folder.logs)
        ) from error
    return installed


def write_files(cluster: Cluster) -> None:
    """Put the files in place that the nodes mount and kind reads."""
    folder = cluster.folder
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path, text in (
        (folder.fence, cluster_spec.render_fence()),
        (folder.config, cluster_spec.render(cluster.shape, folder.fence)),
    ):
        if not path.exists() or path.read_text() != text:  # systemd in the nodes warns of touched files
            path.write_text(text)


def repair(cluster: Cluster, there: list[nodes.Node], addresses: Mapping[str, str], say: Say) -> None:
    """Start what stopped, put back what a restart loses, and wait for every node. Raises StageError."""
    if len(there) != cluster.size:
        raise StageError(
            f"recreate needed: the cluster has {len(there)} nodes of {cluster.size}",
            hint="farmctl down, then the same farmctl up",
        )
    write_files(cluster)  # a stopped node does not start without the file it mounts
    began = datetime.now(UTC)
    if started := nodes.start_stopped(cluster.engine, there, addresses):
        say(f"started {', '.join(started)}")
    # The API server's port may be another one after a restart.
    cluster.run_kind(
        "export", "kubeconfig", "--name", cluster.shape.name, "--kubeconfig", str(cluster.folder.kubeconfig)
    )
    try:
        connect(cluster, say, heard_since=began if started else None)
    except StageError as error:
        export_logs(cluster, say)
        raise StageError(str(error), hint=LOGS_HINT.format(logs=cluster.folder.logs)) from error


def connect(cluster: Cluster, say: Say, *, heard_since: datetime | None = None) -> None:
    """(Re)make the routes that a node's restart loses, then wait until each node is Ready.

    After a restart the API server goes on telling what it heard before: with ``heard_since`` only nodes count that
    have renewed their lease after it.
    """
    if cluster.shape.own_network:
        ranges = wait_for(lambda: pod_ranges(cluster), "every node has its pod range", timeout_s=READY_S)
        network.wire(cluster.engine, cluster.nodes(), ranges)
    say("waiting for the nodes")
    wait_for(lambda: all_ready(cluster, heard_since), "every node is Ready", timeout_s=READY_S)


def pod_ranges(cluster: Cluster) -> dict[str, str] | None:
    items = cluster.kubectl.get("nodes")
    ranges = {item["metadata"]["name"]: item["spec"].get("podCIDR", "") for item in items}
    return ranges if len(ranges) == cluster.size and all(ranges.values()) else None


def all_ready(cluster: Cluster, heard_since: datetime | None = None) -> bool:
    """Raises StageError naming the nodes that are not, or when the API server does not answer."""
    ready = {item["metadata"]["name"] for item in cluster.kubectl.get("nodes") if is_ready(item)}
    if heard_since is not None:
        ready &= heard(cluster.kubectl.get("leases", "-n", "kube-node-lease"), heard_since)
    if missing := sorted({each.name for each in cluster.nodes()} - ready):
        raise StageError(f"not Ready: {', '.join(missing)}")
    return True


def heard(leases: list[dict[str, Any]], since: datetime) -> set[str]:
    """The nodes whose lease was renewed after ``since``."""
    return {
        lease["metadata"]["name"]
        for lease in leases
        if datetime.fromisoformat(lease["spec"].get("renewTime", "1970-01-01T00:00:00Z")) > since
    }


def is_ready(item: Mapping[str, Any]) -> bool:
    conditions = item["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def export_logs(cluster: Cluster, say: Say) -> None:
    """`kind export logs` into the state folder; a failure of it must not hide the fault that asked for it."""
    try:
        cluster.run_kind("export", "logs", str(cluster.folder.logs), "--name", cluster.shape.name)
    except StageError as error:
        say(f"could not export the nodes' logs: {error}")
    else:
        say(f"the nodes' logs are under {cluster.folder.logs}")


def remove(cluster: Cluster) -> None:
    """Remove the nodes and their volumes; of nothing is fine."""
    cluster.run_kind(
        "delete", "cluster", "--name", cluster.shape.name, "--kubeconfig", str(cluster.folder.kubeconfig)
    )
