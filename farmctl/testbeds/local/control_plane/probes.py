"""The kubelet's arithmetic: consecutive probe results to a verdict, crashes to a restart delay."""

from dataclasses import dataclass

TIMEOUT_S = 1.0  # Probe.timeoutSeconds
LIVENESS_PERIOD_S = 10.0
LIVENESS_TIMEOUT_S = 5.0  # a starved machine is no dead agent
LIVENESS_THRESHOLD = 3
LIVENESS_GRACE_S = (
    5.0  # livenessProbe.terminationGracePeriodSeconds: what does not answer has nothing to finish
)
BACKOFF_FIRST_S = 10.0  # CrashLoopBackOff: the first restart is at once, then 10 s doubling to 5 min
BACKOFF_LONGEST_S = 300.0
BACKOFF_FORGOTTEN_S = 600.0


@dataclass(slots=True)
class Probe:
    """``verdict`` turns false after ``threshold`` failures in a row, true after one success (successThreshold)."""

    threshold: int
    verdict: bool
    _failed: int = 0

    def saw(self, success: bool) -> bool:
        """Count one result; return whether the verdict changed."""
        before = self.verdict
        self._failed = 0 if success else self._failed + 1
        if success:
            self.verdict = True
        elif self._failed >= self.threshold:
            self.verdict = False
        return self.verdict != before


@dataclass(slots=True)
class Backoff:
    """Delay before the next start of a container, by how long the last one ran."""

    _crashes: int = 0

    def after_exit(self, ran_s: float) -> float:
        if ran_s >= BACKOFF_FORGOTTEN_S:
            self._crashes = 0
        self._crashes += 1
        if self._crashes == 1:
            return 0.0
        return float(min(BACKOFF_LONGEST_S, BACKOFF_FIRST_S * 2.0 ** (self._crashes - 2)))
