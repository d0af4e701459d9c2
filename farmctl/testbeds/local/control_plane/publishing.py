"""Writes pods into EndpointSlices, late by the set delay, and notices where slices and probes disagree.

While the API server is away nothing is written: what happened meanwhile arrives after it is back.
"""

import asyncio
from collections.abc import Callable, Iterable

from farmctl.testbeds.base import Readiness
from farmctl.testbeds.local.control_plane.endpoints import (
    CONTROLLER,
    MANAGED_BY,
    Lag,
    SliceSet,
    endpoint_of,
    slice_of,
)
from farmctl.testbeds.local.control_plane.pods import LivePod
from farmctl.testbeds.local.control_plane.store import Slice, Store, labels_of
from farmctl.testbeds.local.control_plane.watches import Bell
from farmctl.testbeds.local.settings import LocalSettings


class Publisher:
    def __init__(self, settings: LocalSettings, store: Store, *, may_write: Callable[[], bool]) -> None:
        self._settings, self._store, self._may_write = settings, store, may_write
        self._slices = SliceSet()
        self.lag = Lag(settings.setup.slice_delay_s)
        self.bell = Bell()

    def set_delay(self, delay_s: float) -> None:
        self.lag.set_delay(delay_s, self._now())
        self.bell.ring()

    def changed(self, pod: LivePod) -> None:
        self.lag.say(pod.uid, pod.endpoint(), self._now())
        self._note(pod)
        self.bell.ring()

    def gone(self, pod: LivePod) -> None:
        self.lag.say(pod.uid, None, self._now())
        self.bell.ring()

    async def run(self, pods: dict[str, LivePod]) -> None:
        self._write({0})  # as the real controller: a Service without pods has one empty slice
        while True:
            if self._may_write():
                self._write(self._arrived())
                for pod in pods.values():
                    self._note(pod)
            due = self.lag.next_at() if self._may_write() else None
            await self.bell.wait(None if due is None else max(0.0, due - self._now()))

    def taken_ips(self) -> set[str]:
        """Addresses that some slice names, hand-made ones too."""
        foreign = (obj for obj in self._store.all() if labels_of(obj).get(MANAGED_BY) != CONTROLLER)
        return self._slices.ips() | {ip for obj in foreign for ip in addresses(obj)}

    def readiness(self, pods: Iterable[LivePod]) -> list[Readiness]:
        now = self._now()
        return [
            Readiness(
                pod=pod.name,
                pod_ready=pod.ready and not pod.terminating,
                endpoint_ready=self._listed_ready(pod),
                differs_s=0.0 if pod.differs_since is None else round(now - pod.differs_since, 3),
            )
            for pod in pods
        ]

    def _arrived(self) -> set[int]:
        touched: set[int] = set()
        for uid, endpoint in self.lag.due(self._now()):
            touched |= self._slices.remove(uid) if endpoint is None else self._slices.apply(endpoint)
        return touched

    def _write(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            pods = self._slices.slices.get(number, {})
            name = f"{self._settings.service}-{number}"
            if not pods and number:
                self._store.delete(name)
                continue
            endpoints = [endpoint_of(pod, self._settings.namespace) for pod in pods.values()]
            self._store.put(
                slice_of(
                    name=name,
                    namespace=self._settings.namespace,
                    service=self._settings.service,
                    port=(self._settings.port_name, self._settings.agent_port),
                    endpoints=endpoints,
                )
            )

    def _listed_ready(self, pod: LivePod) -> bool:
        listed = self._slices.find(pod.uid)
        return listed is not None and listed.conditions()["ready"]

    def _note(self, pod: LivePod) -> None:
        differs = (pod.ready and not pod.terminating) != self._listed_ready(pod)
        pod.differs_since = (pod.differs_since or self._now()) if differs else None

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def addresses(obj: Slice) -> list[str]:
    return [ip for endpoint in obj.get("endpoints") or [] for ip in endpoint.get("addresses") or []]
