"""Keeps a rollout of browsers going in a farm whose pods are all in use.

A leased pod counts as unavailable, so in a saturated farm new pods never look available and the controller stops with
old ones left; with maxUnavailable at 100 % it would drain all at once, and a broken image would take the whole farm. So
maxUnavailable is walked up, a quarter of the farm at a time, and only while every new pod is fine: the proxy has it, or
it is ready. A broken image stops at the first quarter. (docs/decisions/0007-rollout.md)
"""

import json
import math

from farmctl.testbeds.kind.cluster.kubectl import FIELD_MANAGER, Kubectl

SHARE = 0.25  # of the farm at a time: the manifest's own maxUnavailable
STRATEGY = "25%"


def unavailable(*, wanted: int, new: int, fine: int, old: int) -> int | None:
    """How many pods may be unavailable for the next step, or None where it must not or need not be taken.

    The controller removes old pods as long as all - newUnavailable > wanted - maxUnavailable. With every new pod in
    use the left side is the number of old pods.
    """
    if not old or not new or fine < new:
        return None
    step = max(1, math.ceil(wanted * SHARE))
    return min(wanted, wanted - max(0, old - step))


def change_to(most_unavailable: int | str) -> dict[str, object]:
    """What is merged into the Deployment."""
    return {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": most_unavailable}}}}


class Rollout:
    """One rollout of one Deployment; what it changed of the strategy is put back by ``leave``."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl, self._namespace = kubectl, namespace
        self._set: int | None = None

    def go_on(self, *, wanted: int, new: int, fine: int, old: int) -> None:
        step = unavailable(wanted=wanted, new=new, fine=fine, old=old)
        if step is not None and step > (self._set or math.ceil(wanted * SHARE)):
            self._patch(step)
            self._set = step

    def leave(self) -> None:
        if self._set is not None:
            self._patch(STRATEGY)
            self._set = None

    def _patch(self, value: int | str) -> None:
        self._kubectl(
            "patch", "deployment", "browsers", "-n", self._namespace,
            f"--field-manager={FIELD_MANAGER}", "-p", json.dumps(change_to(value)),
        )  # fmt: skip
