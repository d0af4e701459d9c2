#!/usr/bin/env python3
"""Roll the browsers of the kind farm over while every pod is leased and callers are held, once for each way of doing it.

A leased pod is not ready, so the Deployment's controller sees a farm in full use as one that is down. For each variant:
how long until only new pods take callers, sessions that broke, sessions a second before and meanwhile, the longest time
without a grant, and how many pods there were at most. docs/decisions quotes the table.

Usage: farmctl up --testbed kind; uv run python scripts/measure_rollout.py [--seconds 6] [--callers 8] [--limit 150]
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from farmctl.testbeds.kind import scale
from farmctl.testbeds.kind.api.doors import Reach
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.cluster.state import KindFolder
from farmctl.testbeds.kind.install import rollout_wait
from farmctl.testbeds.kind.install.rolling import Rollout

# name -> maxSurge, maxUnavailable, FARMAGENT_READY; "walked" as `farmctl up` does
VARIANTS = {
    "25% / 25%, ready=free": ("25%", "25%", "free"),
    "100% / 0, ready=free": ("100%", 0, "free"),
    "25% / 100%, ready=free": ("25%", "100%", "free"),
    "25% / 25%, ready=healthy": ("25%", "25%", "healthy"),
    "25% / 25% walked, ready=free": ("25%", "25%", "free"),
}
WARM_S = 20.0
HASH = rollout_wait.HASH


@dataclass
class Load:
    """Callers that take a session, keep it for a while, and come again at once."""

    door: str
    session_s: float
    stop: threading.Event = field(default_factory=threading.Event)
    ends: list[float] = field(default_factory=list)
    grants: list[tuple[float, float]] = field(default_factory=list)  # when, and how long it was held
    broken: list[str] = field(default_factory=list)

    def call(self) -> None:
        while not self.stop.is_set():
            try:
                self.one()
            except (OSError, WebSocketException, TimeoutError) as error:
                if not self.stop.is_set():
                    self.broken.append(f"{type(error).__name__}: {error}")

    def one(self) -> None:
        began = time.monotonic()
        with connect(f"ws://{self.door}/?hold=300", open_timeout=310, max_size=None, proxy=None) as socket:
            self.ask(socket)
            self.grants.append((time.monotonic(), time.monotonic() - began))
            self.stop.wait(self.session_s)
            self.ask(socket)
        self.ends.append(time.monotonic())

    @staticmethod
    def ask(socket: ClientConnection) -> None:
        socket.send(json.dumps({"id": 1, "method": "Browser.getVersion"}))
        assert "result" in json.loads(socket.recv(timeout=30))


def patch(kubectl: Kubectl, namespace: str, change: dict) -> None:
    kubectl("patch", "deployment", "browsers", "-n", namespace, "--type=strategic", "-p", json.dumps(change))


def set_variant(kubectl: Kubectl, namespace: str, surge: str, unavailable: str | int, ready: str) -> None:
    env = [{"name": "FARMAGENT_READY", "value": ready}]
    patch(
        kubectl,
        namespace,
        {
            "spec": {
                "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
                "template": {"spec": {"containers": [{"name": "browser", "env": env}]}},
            }
        },
    )


def roll(
    kubectl: Kubectl, namespace: str, limit_s: float, keep_going: Callable[[], object]
) -> tuple[float | None, int]:
    """Start a rollout by an annotation; seconds until only new pods take callers (None: not in time), most pods seen."""
    before = {pod["metadata"]["labels"][HASH] for pod in pods(kubectl, namespace)}
    wanted = len(pods(kubectl, namespace))
    note = {"metadata": {"annotations": {"farm/rolled": str(time.time())}}}
    patch(kubectl, namespace, {"spec": {"template": note}})
    began, most = time.monotonic(), 0
    while time.monotonic() - began < limit_s:
        there = pods(kubectl, namespace)
        most = max(most, len(there))
        staying = [pod for pod in there if "deletionTimestamp" not in pod["metadata"]]
        old = [pod for pod in staying if pod["metadata"]["labels"][HASH] in before]
        if not old and len(staying) >= wanted:
            return time.monotonic() - began, most
        keep_going()
        time.sleep(0.5)
    return None, most


def pods(kubectl: Kubectl, namespace: str) -> list[dict]:
    return kubectl.get("pods", "-n", namespace, "-l", "app.kubernetes.io/name=browser")


def measure(
    kubectl: Kubectl, namespace: str, door: str, asked: argparse.Namespace, keep_going: Callable[[], object]
) -> dict:
    load = Load(door, asked.seconds)
    callers = [threading.Thread(target=load.call, daemon=True) for _ in range(asked.callers)]
    for caller in callers:
        caller.start()
    time.sleep(WARM_S)
    began = time.monotonic()
    rate_before = sum(end > began - WARM_S + asked.seconds for end in load.ends) / (WARM_S - asked.seconds)
    took, most = roll(kubectl, namespace, asked.limit, keep_going)
    ended = time.monotonic()
    time.sleep(asked.seconds)
    load.stop.set()
    for caller in callers:
        caller.join(40)
    during = sorted(when for when, _ in load.grants if when > began)
    gaps = [b - a for a, b in zip([began, *during], [*during, ended], strict=False)]
    return {
        "took_s": took,
        "broken": len(load.broken),
        "why": sorted(set(load.broken))[:3],
        "before_a_s": round(rate_before, 2),
        "meanwhile_a_s": round(sum(began < end <= ended for end in load.ends) / (ended - began), 2),
        "longest_without_grant_s": round(max(gaps, default=0), 1),
        "held_p50_s": round(statistics.median(held for when, held in load.grants if when > began), 1),
        "most_pods": most,
    }


def walking(kubectl: Kubectl, namespace: str, reach: Reach, rollout: Rollout) -> Callable[[], object]:
    def keep_going() -> None:
        seen = rollout_wait.look(kubectl, namespace, reach)
        rollout.go_on(wanted=seen.wanted, new=seen.new, fine=seen.fine, old=seen.old)

    return keep_going


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="of a session")
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for a rollout")
    parser.add_argument("--only", default="", help="variants whose name contains this")
    asked = parser.parse_args()
    folder = KindFolder()
    there = folder.read()
    assert there is not None and there.shape is not None, "farmctl up --testbed kind first"  # noqa: PT018
    kubectl, reach = scale.opened(there, folder, print)

    def settled() -> None:
        rollout_wait.wait_until_served(
            kubectl, there.namespace, reach, timeout_s=300, progress=lambda _: None
        )
        while len(pods(kubectl, there.namespace)) > there.pods:  # those that still end would hide the peak
            time.sleep(1)

    try:
        for name, variant in VARIANTS.items():
            if asked.only in name:
                set_variant(kubectl, there.namespace, *variant)
                settled()
                rollout = Rollout(kubectl, there.namespace)
                keep_going = walking(kubectl, there.namespace, reach, rollout) if "walked" in name else bool
                seen = measure(kubectl, there.namespace, there.shape.door, asked, keep_going)
                rollout.leave()
                print(json.dumps({"variant": name, **seen}), flush=True)
                settled()
    finally:
        scale.scale(folder, there.pods, print, timeout_s=300)


if __name__ == "__main__":
    main()
