"""The kubelet of every pod on this machine: starts its container, probes it, restarts it, stops it.

A container that dies is restarted in its pod with a growing delay; a pod that is deleted gets SIGTERM and, when
its grace is over, SIGKILL. Probes go on while a pod terminates. What the kubelet learns, it says by ``on_change``.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from farmctl.testbeds.local.control_plane import probes
from farmctl.testbeds.local.control_plane.pods import LivePod
from farmctl.testbeds.local.processes.children import Child

NOTICE_S = 0.3  # from a container's death to the pod's status; measured 0.2 to 0.6 s on a real node


@dataclass(slots=True)
class Probing:
    """Readiness probe's settings; a change counts from the next probe on."""

    period_s: float = 1.0
    threshold: int = 1


class Starter(Protocol):
    async def __call__(self, pod: LivePod) -> Child: ...


class Kubelet:
    def __init__(
        self,
        start: Starter,
        *,
        session: aiohttp.ClientSession,
        on_change: Callable[[LivePod], None],
        say: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self._start, self._session, self._on_change, self._say = start, session, on_change, say
        self.probing = Probing()

    async def run(self, pod: LivePod) -> None:
        """One pod's life; returns when its last process is gone."""
        backoff = probes.Backoff()
        clock = asyncio.get_running_loop().time
        try:
            while not pod.terminating:
                began = clock()
                code = await self._container(pod)
                await asyncio.sleep(0 if pod.terminating else NOTICE_S)
                self._set_ready(pod, False)
                if pod.terminating or pod.doomed:
                    break
                pod.kill_at = None
                pod.restarts += 1
                delay_s = backoff.after_exit(clock() - began)
                self._say("container-died", {"pod": pod.name, "code": code, "restart_in_s": delay_s})
                await self._rest(pod, delay_s)
        finally:
            if pod.child is not None:
                await pod.child.kill()

    def delete(self, pod: LivePod, grace_s: float) -> None:
        """Begin, or hurry, the pod's end."""
        kill_at = asyncio.get_running_loop().time() + grace_s
        if not pod.terminating:
            self._say("pod-deleted", {"pod": pod.name, "grace_s": grace_s})
        pod.terminating = True
        pod.kill_at = kill_at if pod.kill_at is None else min(pod.kill_at, kill_at)
        pod.bell.ring()
        self._on_change(pod)

    async def _rest(self, pod: LivePod, delay_s: float) -> None:
        until = asyncio.get_running_loop().time() + delay_s
        while not pod.terminating and (left := until - asyncio.get_running_loop().time()) > 0:
            await pod.bell.wait(left)

    async def _container(self, pod: LivePod) -> int:
        try:
            pod.child = child = await self._start(pod)
        except OSError as error:
            self._say("container-not-started", {"pod": pod.name, "error": str(error)})
            return -1
        pod.phase = "Running"
        self._on_change(pod)
        async with asyncio.TaskGroup() as group:
            probing = [group.create_task(self._readiness(pod)), group.create_task(self._liveness(pod))]
            exited = group.create_task(child.wait())
            await self._until_exit(pod, child, exited)
            for task in probing:
                task.cancel()
        return exited.result()

    async def _until_exit(self, pod: LivePod, child: Child, exited: "asyncio.Task[int]") -> None:
        clock = asyncio.get_running_loop().time
        told = False
        while not exited.done():
            if pod.kill_at is not None and not told:
                child.terminate()
                told = True
            left = None if pod.kill_at is None else pod.kill_at - clock()
            if left is not None and left <= 0:
                await child.kill()
                return
            async with asyncio.TaskGroup() as group:
                rung = group.create_task(pod.bell.wait(left))
                await asyncio.wait({exited, rung}, return_when=asyncio.FIRST_COMPLETED)
                rung.cancel()

    async def _readiness(self, pod: LivePod) -> None:
        probe = probes.Probe(self.probing.threshold, verdict=False)
        clock = asyncio.get_running_loop().time
        due = clock() + random.uniform(0, min(1.0, self.probing.period_s))
        while True:
            await asyncio.sleep(max(0.0, due - clock()))
            due = clock() + self.probing.period_s
            probe.threshold = self.probing.threshold
            if probe.saw(await self.asked(pod, "/readyz", probes.TIMEOUT_S)):
                self._set_ready(pod, probe.verdict)

    async def _liveness(self, pod: LivePod) -> None:
        probe = probes.Probe(probes.LIVENESS_THRESHOLD, verdict=True)
        while True:
            await asyncio.sleep(probes.LIVENESS_PERIOD_S)
            live = await self.asked(pod, "/livez", probes.LIVENESS_TIMEOUT_S)
            if probe.saw(live) and not pod.terminating:
                self._say("liveness-failed", {"pod": pod.name})
                pod.kill_at = asyncio.get_running_loop().time() + probes.LIVENESS_GRACE_S
                pod.bell.ring()
                return

    async def asked(self, pod: LivePod, path: str, timeout_s: float) -> bool:
        """HttpGet of a probe: any status from 200 to 399 is a success, anything else and silence are not."""
        try:
            async with self._session.get(
                f"http://{pod.address}{path}",
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as answer:
                return 200 <= answer.status < 400
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    def _set_ready(self, pod: LivePod, ready: bool) -> None:
        if pod.ready != ready:
            pod.set_ready(ready, asyncio.get_running_loop().time())
            self._on_change(pod)
