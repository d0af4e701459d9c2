"""The one retry this farm believes in: explicit, by the caller, for jobs that may run twice.

The farm never replays anything, because it cannot know how far a job came. ``run_job`` is how a caller says
"mine may run again". It repeats a job only when the job itself was not at fault.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from farmctl.client.errors import DoorUnreachable, FarmError, JobLost, Refused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LostJobPolicy:
    """When a job is run again, and after how long.

    Again: JobLost (pod, browser or proxy died under it), DoorUnreachable (nothing was sent), and a refusal
    that carries Retry-After (queue-full, hold-timeout, no-free-pod, draining, descriptors). Never: any other
    refusal (bad-request, unauthorized, lease-max, ...), PageFailed, Playwright's own errors, or anything else
    that the job raises.

    After: a random time up to ``base_s`` doubling with each failure to at most ``cap_s`` (full jitter, so
    that the callers of one lost machine do not come back as one wave), and never before Retry-After.
    """

    attempts: int = 3
    base_s: float = 0.25
    cap_s: float = 10.0

    def retries(self, error: BaseException) -> bool:
        if isinstance(error, JobLost | DoorUnreachable):
            return True
        return isinstance(error, Refused) and error.retry_after_s is not None

    def delay_s(self, failures: int, error: BaseException, chance: float) -> float:
        """Seconds to wait after the ``failures``-th failure (from 1); ``chance`` is random in [0, 1)."""
        jitter_s = chance * min(self.cap_s, self.base_s * 2.0 ** (failures - 1))
        floor_s = error.retry_after_s if isinstance(error, Refused) else None
        return (floor_s or 0.0) + jitter_s


async def run_job(
    job: Callable[[], Awaitable[T]],
    *,
    attempts: int = 3,
    policy: LostJobPolicy | None = None,
    on_retry: Callable[[FarmError, int, float], None] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    chance: Callable[[], float] = random.random,
) -> T:
    """Run ``job`` until it returns, at most ``attempts`` times, by LostJobPolicy; the last error is raised.

    The job must be idempotent: a lost job may have done all of its work but for the answer. Each attempt must
    take a lease of its own (connect, render or lease inside the job). ``on_retry`` gets the error, how many
    attempts have failed and the seconds until the next one.
    """
    rule = policy or LostJobPolicy(attempts=attempts)
    failures = 0
    while True:
        try:
            return await job()
        except FarmError as error:
            failures += 1
            if failures >= rule.attempts or not rule.retries(error):
                raise
            delay_s = rule.delay_s(failures, error, chance())
            if on_retry is not None:
                on_retry(error, failures, delay_s)
        await sleep(delay_s)
