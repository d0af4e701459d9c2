"""The process of the fake farm: pods and control plane on one loop, steered by JSON lines on stdin.

Prints one line when it listens and one line for each command: ``report``, ``flip`` and ``end``.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable

from farmctl.bench.fakes.epoll import Loop
from farmctl.bench.fakes.fake_pods import FakePods, Pod
from farmctl.bench.fakes.fake_slices import FakeSlices


class Steering:
    """Reads commands, answers each with one JSON line."""

    def __init__(self, loop: Loop, pods: FakePods, slices: FakeSlices) -> None:
        self._loop = loop
        self._pods = pods
        self._slices = slices
        self._in = b""
        loop.watch(0, self._on_ready)

    def _on_ready(self, _: int) -> None:
        data = os.read(0, 65536)
        if not data:
            self._loop.stop()
            return
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            getattr(self, f"do_{command.pop('do')}")(**command)

    def do_report(self) -> None:
        use = resource.getrusage(resource.RUSAGE_SELF)
        say(
            leases=self._pods.leases,
            doubles=self._pods.doubles,
            busy_answers=self._pods.busy_answers,
            events=self._slices.events,
            listed_at_ns=self._slices.listed_at,
            cpu_s=use.ru_utime + use.ru_stime,
            free=sum(pod.free for pod in self._pods.pods),
        )

    def do_flip(self, *, events: int, each_s: float) -> None:
        """Publish made-up changes, one slice after another, then answer."""
        start, slices = time.monotonic(), self._slices.slices

        def step(number: int) -> Callable[[], None]:
            def run() -> None:
                if number == events:
                    say(flipped=events)
                    return
                self._slices.flip(number, ready=number // slices % 2 == 1)
                self._loop.at(start + (number + 1) * each_s, step(number + 1))

            return run

        step(0)()

    def do_end(self) -> None:
        self._loop.stop()


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def listed_pod(text: str) -> tuple[Pod, int]:
    """Read host:port/namespace/name/uid: a real pod that the control plane always calls ready."""
    where, _namespace, name, uid = text.split("/")
    host, _, port = where.rpartition(":")
    return Pod(0, name, uid, host), int(port)


def main(pods: int, late_s: float, listed: str) -> None:
    loop = Loop()
    farm = FakePods(loop, pods)
    known, port = farm.pods, farm.port
    if listed:
        real, port = listed_pod(listed)
        known = [real]
    slices = FakeSlices(loop, known, port, late_s=late_s)
    Steering(loop, farm, slices)
    say(pod_port=farm.port, api_port=slices.port)
    loop.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
