"""The kind cluster itself: created, repaired, examined, removed. Its kubeconfig lives in the state folder; the user's
own context is never touched.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from farmctl.errors import StageError
from farmctl.images.catalogue import ROOT, Catalogue
from farmctl.images.engines import Engine, kind_environment
from farmctl.images.gobuild import Say, build, kept_at
from farmctl.testbeds.kind import network, nodes

T = TypeVar("T")
TEMPLATE = ROOT / "clusters" / "kind" / "cluster.yaml.j2"


@dataclass(frozen=True, slots=True)
class Shape:
    """What cannot be changed without a new cluster."""

    name: str = "farm"
    workers: int = 2
    door_host: str = "127.0.0.1"
    door_port: int = 9222
    admin_port: int = 9223
    own_network: bool = False  # source-built nodes bring no CNI
    restricted: bool = False  # no CAP_SYS_RESOURCE here


@dataclass(frozen=True, slots=True)
class Cluster:
    engine: Engine
    kind: Path
    kubectl: Path
    state: Path  # the folder that holds kubeconfig and configuration
    shape: Shape

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    def run_kind(self, *words: str, timeout_s: float = 900) -> str:
        return _run([str(self.kind), *words], self._env(), timeout_s)

    def run_kubectl(self, *words: str, stdin: str | None = None, timeout_s: float = 120) -> str:
        return _run([str(self.kubectl), *words], self._env(), timeout_s, stdin)

    def get(self, *words: str) -> dict[str, Any]:
        """``kubectl get WORDS -o json``."""
        answer: dict[str, Any] = json.loads(self.run_kubectl("get", *words, "-o", "json"))
        return answer

    def nodes(self) -> list[nodes.Node]:
        return nodes.listed(self.engine, self.shape.name)

    def _env(self) -> dict[str, str]:
        return kind_environment(self.engine, self.kubeconfig)


def programs(catalogue: Catalogue, say: Say) -> tuple[Path, Path]:
    """Return kind and kubectl, built from source when PATH has none of the catalogue's version."""
    found = []
    for name in ("kind", "kubectl"):
        entry = catalogue.providing(name)
        on_path = shutil.which(name)
        if name == "kind" and on_path and entry.version in _run([on_path, "version"], dict(os.environ), 30):
            found.append(Path(on_path))
            continue
        build(entry, say, only=name)
        found.append(kept_at(entry, name))
    return found[0], found[1]


def render(shape: Shape) -> str:
    """Return kind's configuration for this shape."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701 - YAML
    return environment.from_string(TEMPLATE.read_text()).render(
        {name: getattr(shape, name) for name in Shape.__slots__}
    )


def create(cluster: Cluster, image: str, say: Say) -> None:
    """Create the nodes, fence and wire them, and wait until each is Ready. Raises StageError, leaving nothing."""
    cluster.state.mkdir(parents=True, exist_ok=True)
    config = cluster.state / "kind.yaml"
    config.write_text(render(cluster.shape))
    say(f"creating the cluster's {cluster.shape.workers + 1} nodes from {image}")
    # The fence has to stand before anything runs; kind offers no hook, so it is put up as nodes appear.
    cluster.run_kind("create", "cluster", "--config", str(config), "--image", image, "--retain")
    connect(cluster, say)


def connect(cluster: Cluster, say: Say) -> None:
    """(Re)make what a node's restart loses, then wait for the nodes."""
    network.fence(cluster.engine, cluster.nodes())
    if cluster.shape.own_network:
        items = wait_for(lambda: _with_pod_ranges(cluster), "every node has its pod range", timeout_s=60)
        network.wire(cluster.engine, cluster.nodes(), items)
    say("waiting for the nodes")
    wait_for(lambda: all_ready(cluster), "every node is Ready", timeout_s=180)


def _with_pod_ranges(cluster: Cluster) -> dict[str, str] | None:
    items = cluster.get("nodes")["items"]
    ranges = {item["metadata"]["name"]: item["spec"].get("podCIDR", "") for item in items}
    return ranges if len(ranges) == cluster.shape.workers + 1 and all(ranges.values()) else None


def all_ready(cluster: Cluster) -> bool:
    items = cluster.get("nodes")["items"]
    ready = [
        any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", []))
        for item in items
    ]
    return len(ready) == cluster.shape.workers + 1 and all(ready)


def wait_for(state: Callable[[], T | None], what: str, *, timeout_s: float) -> T:
    """Ask until ``state`` is true-ish. Raises StageError naming ``what`` when it is not in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        problem = ""
        try:
            if value := state():
                return value
        except StageError as error:
            problem = f" ({error})"
        if time.monotonic() > deadline:
            raise StageError(
                f"waited {timeout_s:.0f} s in vain until {what}{problem}", hint="farmctl logs --cluster"
            )
        time.sleep(0.5)


def remove(cluster: Cluster) -> None:
    """Remove the nodes and their volumes; of nothing is fine."""
    cluster.run_kind("delete", "cluster", "--name", cluster.shape.name)


def _run(command: list[str], env: dict[str, str], timeout_s: float, stdin: str | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=env,
            timeout=timeout_s,
            check=False,
            input=stdin or "",
        )
    except subprocess.TimeoutExpired as error:
        raise StageError(f"`{' '.join(command[:4])}` did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
        raise StageError(f"`{Path(command[0]).name} {' '.join(command[1:3])} …` failed:\n{last}")
    return done.stdout
