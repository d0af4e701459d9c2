"""Sums over measured samples: percentiles of one round, median and spread over rounds."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of one round, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of_ns(cls, samples_ns: Iterable[int]) -> "Latency":
        """Sum nanosecond samples up; all zeros where there are none."""
        ordered = sorted(samples_ns)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        at = [percentile(ordered, share) / 1e6 for share in (0.5, 0.9, 0.99, 0.999, 1.0)]
        return cls(len(ordered), *(round(value, 4) for value in at))

    def as_dict(self) -> dict[str, float | int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over the rounds of a run: its median, and the least and most seen."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Sum the rounds up; raises ValueError where there are none."""
        if not values:
            raise ValueError("no round was measured")
        return cls(statistics.median(values), min(values), max(values), len(values))


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the nearest-rank percentile of sorted samples (never an interpolated, unseen value)."""
    rank = max(1, math.ceil(share * len(ordered) - 1e-9))
    return ordered[rank - 1]
