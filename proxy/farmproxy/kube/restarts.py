"""Why a watch was started anew, and how long to wait before it: jittered, doubling, never sooner than the API server
asks for.
"""

import random
from collections.abc import Callable

from farmwire.reasons import WatchRestart

FIRST_PAUSE_S = 0.1  # after a healthy watch; keeps a server that closes at once from being hammered
LONGEST_PAUSE_S = 30.0
LONGEST_RETRY_AFTER_S = 300.0  # a longer wish is a slip


class Interrupted(Exception):  # no error: every watch ends so
    """A list or watch came to its end. ``relist``: the resume point is worth nothing any more."""

    def __init__(
        self, reason: WatchRestart, detail: str, *, relist: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.relist = relist
        self.retry_after_s = retry_after_s


class Backoff:
    """Pauses between attempts; ``failures`` counts those without a healthy watch between them."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self.failures = 0

    def healthy(self) -> None:
        self.failures = 0

    def next_pause_s(self, retry_after_s: float | None) -> float:
        """Seconds to wait before the next attempt."""
        full = min(FIRST_PAUSE_S * 2.0 ** min(self.failures, 20), LONGEST_PAUSE_S)
        self.failures += 1
        asked = min(max(retry_after_s or 0.0, 0.0), LONGEST_RETRY_AFTER_S)
        return asked + self._uniform(
            full / 2, full
        )  # on top, so that many proxies do not return in one instant
