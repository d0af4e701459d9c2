"""Counts that a lease touches a dozen times: plain numbers, made into metrics only when somebody scrapes.

They belong to the one thread of the event loop, so they need no lock.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import accumulate
from typing import TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

L = TypeVar("L", bound=StrEnum)


class Count:
    """How often something happened."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        self.value += 1


class Buckets:
    """Seconds, counted by upper bound (inclusive, as the exposition format's ``le`` says)."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        self._bounds = tuple(float(bound) for bound in bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def family(self, name: str, says: str) -> HistogramMetricFamily:
        names = [*(f"{bound}" for bound in self._bounds), "+Inf"]
        return HistogramMetricFamily(
            name, says, buckets=list(zip(names, accumulate(self._counts), strict=True)), sum_value=self._sum
        )


def counter_family(name: str, says: str, label: str, counts: Mapping[L, Count]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, says, labels=[label])
    for value, count in counts.items():
        family.add_metric([str(value)], count.value)
    return family
