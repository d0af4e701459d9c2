"""The EndpointSlice controller: pods to slices of at most 100 endpoints, late by as much as is asked for.

A pod keeps its slice while it lives, so that a change of one pod is an event of one slice. A terminating pod is
never ready, still serving while its probe says so, and leaves with its last process (KEP-1672).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from farmwire.paths import SERVICE_NAME_LABEL

from farmctl.testbeds.local.control_plane.store import Slice

SLICE_SIZE = 100  # --max-endpoints-per-slice
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What the controller knows of one pod."""

    name: str
    uid: str
    ip: str
    node: str
    ready: bool  # the probe's verdict
    terminating: bool = False

    def conditions(self) -> dict[str, bool]:
        return {
            "ready": self.ready and not self.terminating,
            "serving": self.ready,
            "terminating": self.terminating,
        }


def slice_of(
    *, name: str, namespace: str, service: str, port: tuple[str, int], endpoints: Iterable[dict[str, Any]]
) -> Slice:
    """A discovery.k8s.io/v1 EndpointSlice; ``port`` is its name and number."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {SERVICE_NAME_LABEL: service, MANAGED_BY: CONTROLLER},
        },
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": port[0], "port": port[1], "protocol": "TCP"}],
    }


def endpoint_of(pod: Endpoint, namespace: str) -> dict[str, Any]:
    return {
        "addresses": [pod.ip],
        "conditions": pod.conditions(),
        "nodeName": pod.node,
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod.name, "uid": pod.uid},
    }


@dataclass(slots=True)
class SliceSet:
    """Which pod stands in which slice. ``apply`` and ``remove`` return the numbers of the slices touched."""

    size: int = SLICE_SIZE
    slices: dict[int, dict[str, Endpoint]] = field(default_factory=dict)

    def apply(self, pod: Endpoint) -> set[int]:
        number = self._home(pod.uid)
        if self.slices.get(number, {}).get(pod.uid) == pod:
            return set()
        self.slices.setdefault(number, {})[pod.uid] = pod
        return {number}

    def remove(self, uid: str) -> set[int]:
        for number, pods in self.slices.items():
            if pods.pop(uid, None):
                if not pods:
                    del self.slices[number]
                return {number}
        return set()

    def find(self, uid: str) -> Endpoint | None:
        return next((pods[uid] for pods in self.slices.values() if uid in pods), None)

    def ips(self) -> set[str]:
        return {pod.ip for pods in self.slices.values() for pod in pods.values()}

    def _home(self, uid: str) -> int:
        for number, pods in self.slices.items():
            if uid in pods:
                return number
        room = [number for number, pods in self.slices.items() if len(pods) < self.size]
        # The fullest slice with room is filled first, as the real controller does.
        best = max(room, key=lambda number: len(self.slices[number]), default=None)
        return max(self.slices, default=-1) + 1 if best is None else best


@dataclass(slots=True)
class Lag:
    """Words about pods that have not reached the slices yet. A newer word about a pod overtakes no older one:
    it replaces it, so a shortened delay never lets the past win.
    """

    delay_s: float = 0.0
    _queue: deque[tuple[float, str, Endpoint | None]] = field(default_factory=deque)

    def set_delay(self, delay_s: float, now: float) -> None:
        """What waits already comes no later than a new word would."""
        self.delay_s = delay_s
        self._queue = deque((min(at, now + delay_s), uid, pod) for at, uid, pod in self._queue)

    def say(self, uid: str, pod: Endpoint | None, now: float) -> None:
        """``pod`` None: it is gone."""
        self._queue.append((now + self.delay_s, uid, pod))

    def due(self, now: float) -> list[tuple[str, Endpoint | None]]:
        """Take what has arrived by ``now``, in the order it was said."""
        newest: dict[str, int] = {}
        for place, (at, uid, _) in enumerate(self._queue):
            if at <= now:
                newest[uid] = place
        out: list[tuple[str, Endpoint | None]] = []
        rest: deque[tuple[float, str, Endpoint | None]] = deque()
        for place, (at, uid, pod) in enumerate(self._queue):
            if at <= now:
                out.append((uid, pod))
            elif place > newest.get(uid, -1):
                rest.append((at, uid, pod))
        self._queue = rest
        return out

    def next_at(self) -> float | None:
        return min((at for at, _, _ in self._queue), default=None)
