"""What the control plane knows of one pod, and where a new one may listen.

An address is given again only when no slice names it any more: the next pod would else be dialled under the
dead one's name, and the farm would look healthier than it is.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from farmctl.testbeds.base import Pod
from farmctl.testbeds.local.control_plane.endpoints import Endpoint
from farmctl.testbeds.local.control_plane.replicas import Candidate
from farmctl.testbeds.local.control_plane.watches import Bell
from farmctl.testbeds.local.processes.children import Child

PODS_LIMIT = 200  # 127.0.1.1 to .200; above are addresses where nothing ever listens
DEAD_ADDRESSES = range(201, 255)
_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # k8s.io/apimachinery/pkg/util/rand: no accidental words


@dataclass(slots=True, eq=False)
class LivePod:
    """``kill_at`` is the loop time of the SIGKILL once it has to stop; ``doomed``: its container is not restarted."""

    name: str
    uid: str
    number: int
    ip: str
    port: int
    node: str
    created: float  # loop time
    phase: Literal["Pending", "Running", "Failed"] = "Pending"
    ready: bool = False
    ready_since: float | None = None
    ever_ready: bool = False
    restarts: int = 0
    terminating: bool = False
    doomed: bool = False
    kill_at: float | None = None
    child: Child | None = None
    differs_since: float | None = None  # since when slices and probe disagree
    unready_until: float | None = None  # wall clock; infinite: its Chrome never starts
    frozen: bool = False
    bell: Bell = field(default_factory=Bell)

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    def set_ready(self, ready: bool, now: float) -> None:
        self.ready = ready
        self.ready_since = now if ready else None
        self.ever_ready |= ready

    def shown(self, now: float) -> Pod:
        return Pod(
            name=self.name,
            uid=self.uid,
            address=self.address,
            phase="Terminating" if self.terminating else self.phase,
            ready=self.ready and not self.terminating,
            restarts=self.restarts,
            age_s=round(now - self.created, 3),
            node=self.node,
        )

    def endpoint(self) -> Endpoint:
        return Endpoint(self.name, self.uid, self.ip, self.node, self.ready, self.terminating)

    def candidate(self) -> Candidate:
        return Candidate(
            self.name,
            self.uid,
            self.node,
            self.phase == "Pending",
            self.ready_since,
            self.restarts,
            self.created,
        )

    def manifest(self, namespace: str) -> dict[str, Any]:
        """As GET /api/v1/namespaces/NS/pods shows it: the few fields that a reader of this farm looks at."""
        metadata: dict[str, Any] = {"name": self.name, "namespace": namespace, "uid": self.uid}
        if self.terminating:
            metadata["deletionTimestamp"] = "1970-01-01T00:00:00Z"
        return {
            "metadata": metadata,
            "spec": {"nodeName": self.node},
            "status": {
                "phase": self.phase,
                "podIP": self.ip,
                "conditions": [{"type": "Ready", "status": str(self.ready)}],
                "containerStatuses": [{"name": "agent", "ready": self.ready, "restartCount": self.restarts}],
            },
        }


def new_name(service: str, taken: Collection[str]) -> str:
    while (name := f"{service}-{''.join(random.choices(_NAME_LETTERS, k=5))}") in taken:
        pass
    return name


def free_number(network: str, taken_ips: Collection[str]) -> int | None:
    """The lowest N whose network.N is neither a pod's nor in a slice; None when all are taken."""
    return next((n for n in range(1, PODS_LIMIT + 1) if f"{network}.{n}" not in taken_ips), None)
