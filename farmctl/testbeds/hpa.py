"""The HorizontalPodAutoscaler's formula for one external metric with an AverageValue target, as a pure value.

It copies kube-controller-manager: what the real one gets wrong, this one gets wrong in the same way. A metric
that is absent scales nothing; the count is divided by *status* replicas, surge and draining ones not counted.
"""

import math
from dataclasses import dataclass, field

TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance
# autoscaling/v2, HPAScalingRules' defaults: up by 100 % or by 4 pods a 15 s, whichever is more; down freely.
UP_PERIOD_S = 15.0
UP_PERCENT = 100
UP_PODS = 4


@dataclass(frozen=True, slots=True)
class Bounds:
    low: int
    high: int
    target: float = 1.0  # averageValue: demand that one pod is worth
    scale_down_wait_s: float = 300.0  # scaleDown.stabilizationWindowSeconds


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason`` is the condition's reason as the real HPA words it."""

    pods: int
    reason: str


def per_pod(metric: float, target: float, status_pods: int) -> int:
    """GetExternalPerPodMetricReplicas: ceil(metric / target), or the status count within the tolerance."""
    capacity = target * status_pods
    ratio = metric / capacity if capacity else (math.inf if metric else math.nan)
    if 1 - TOLERANCE <= ratio <= 1 + TOLERANCE:
        return status_pods
    return math.ceil(metric / target)


@dataclass(slots=True)
class Autoscaler:
    """Remembers what the formula needs between two syncs: recommendations and recent changes."""

    bounds: Bounds
    _said: list[tuple[float, int]] = field(default_factory=list)  # when, unstabilized recommendation
    _changed: list[tuple[float, int]] = field(default_factory=list)  # when, change of the pod count

    def sync(self, *, metric: float | None, spec_pods: int, status_pods: int, now: float) -> Verdict:
        """One sync period's decision; ``metric`` None when it could not be read. ``now`` in seconds."""
        bounds = self.bounds
        if not self._said:
            self._said.append((now, spec_pods))  # maybeInitScaleDownStabilizationWindow
        if spec_pods == 0 and bounds.low > 0:
            return Verdict(0, "ScalingDisabled")  # someone scaled to zero by hand: the HPA lets it be
        if spec_pods > bounds.high:
            return self._decided(spec_pods, bounds.high, "TooManyReplicas", now)
        if spec_pods < bounds.low:
            return self._decided(spec_pods, bounds.low, "TooFewReplicas", now)
        if metric is None:
            return Verdict(spec_pods, "FailedGetExternalMetric")
        wanted = per_pod(metric, bounds.target, status_pods)
        stable = self._stabilized(wanted, spec_pods, now)
        capped = max(bounds.low, min(stable, bounds.high, self._ceiling(spec_pods, now)))
        return self._decided(spec_pods, capped, "ReadyForNewScale", now)

    def _stabilized(self, wanted: int, spec_pods: int, now: float) -> int:
        wait = self.bounds.scale_down_wait_s
        self._said = [(at, pods) for at, pods in self._said if now - at < wait] + [(now, wanted)]
        # Up has no window, so the newest word counts; down waits for the highest word of the window.
        highest = max(pods for _, pods in self._said)
        return min(max(spec_pods, wanted), highest)

    def _ceiling(self, spec_pods: int, now: float) -> int:
        self._changed = [(at, change) for at, change in self._changed if now - at < UP_PERIOD_S]
        at_period_start = spec_pods - sum(change for _, change in self._changed)
        by_percent = math.ceil(at_period_start * (1 + UP_PERCENT / 100))
        return max(spec_pods, by_percent, at_period_start + UP_PODS)

    def _decided(self, before: int, after: int, reason: str, now: float) -> Verdict:
        if after != before:
            self._changed.append((now, after - before))
        return Verdict(after, reason)
