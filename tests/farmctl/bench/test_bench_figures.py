import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmctl.bench.figures import Latency, Spread, percentile
from farmctl.bench.measures.job import interval
from farmctl.bench.tables import number


def test_percentiles_are_samples_that_were_seen():
    samples = sorted(range(1, 101))
    assert [percentile(samples, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert percentile([7], 0.99) == 7


@given(st.lists(st.integers(0, 10**12), min_size=1), st.floats(0, 1))
def test_a_percentile_never_falls_below_a_smaller_one(samples, share):
    ordered = sorted(samples)
    assert percentile(ordered, share) in ordered
    assert percentile(ordered, 0.0) <= percentile(ordered, share) <= percentile(ordered, 1.0)


def test_latency_is_in_milliseconds_and_counts():
    latency = Latency.of_ns([3_000_000, 1_000_000, 2_000_000])
    assert (latency.count, latency.p50, latency.max) == (3, 2.0, 3.0)
    assert Latency.of_ns([]).count == 0


def test_a_spread_is_median_least_and_most():
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    with pytest.raises(ValueError, match="no round"):
        Spread.of([])


def test_the_interval_holds_the_median_and_is_the_same_each_time():
    ratios = [1.0 + i / 100 for i in range(30)]
    low, high = interval(ratios)
    assert low <= 1.145 <= high
    assert (low, high) == interval(ratios)
    assert interval([1.2] * 30) == (1.2, 1.2)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0123, "0.012"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (8000, "8,000"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_have_three_digits(value, shown):
    assert number(value) == shown
