"""The ReplicaSet controller's two decisions: how many pods to make, and which to delete when there are too many.

The order is the real one's (ActivePodsWithRanks): a pod that is not ready goes first, and in this farm not ready
often means busy. That is why sessions survive by draining, never by being spared.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that is not terminating. Times are seconds of one clock; ``ready_since`` None: not ready."""

    name: str
    uid: str
    node: str
    pending: bool
    ready_since: float | None
    restarts: int
    created: float
    deletion_cost: int = 0  # controller.kubernetes.io/pod-deletion-cost


def missing(wanted: int, active: int) -> int:
    """How many pods to create."""
    return max(0, wanted - active)


def victims(candidates: Sequence[Candidate], wanted: int, now: float) -> list[Candidate]:
    """Pods to delete, first victim first, so that ``wanted`` remain."""
    crowd = Counter(pod.node for pod in candidates)
    ranked = sorted(candidates, key=lambda pod: _rank(pod, crowd[pod.node], now))
    return ranked[: max(0, len(candidates) - wanted)]


def _rank(pod: Candidate, on_node: int, now: float) -> tuple[float | str, ...]:
    ready_s = 0.0 if pod.ready_since is None else now - pod.ready_since
    return (
        not pod.pending,
        pod.ready_since is not None,
        pod.deletion_cost,
        -on_node,  # the fuller node gives first
        _bucket(ready_s),
        -pod.restarts,
        _bucket(now - pod.created),
        pod.uid,
    )


def _bucket(age_s: float) -> int:
    # LogarithmicScaleDown: ages of one power of two count as equal, so that it is not always the youngest.
    return int(math.log2(age_s)) if age_s >= 1 else 0


def node_for(nodes: Sequence[str], taken: Sequence[str], closed: frozenset[str]) -> str | None:
    """The node with the fewest pods that is not cordoned; None when every one is (the pod stays pending)."""
    crowd = Counter(taken)
    open_nodes = [node for node in nodes if node not in closed]
    return min(open_nodes, key=lambda node: (crowd[node], nodes.index(node)), default=None)
