from enum import StrEnum

import pytest
from farmproxy.observe.counters import Buckets, Count, counter_family
from hypothesis import given
from hypothesis import strategies as st


def rows(family):
    return {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}


@pytest.mark.parametrize(
    ("seconds", "first"), [(0.0, "0.5"), (0.5, "0.5"), (0.51, "1.0"), (1.0, "1.0"), (7.0, "+Inf")]
)
def test_a_bound_is_inclusive_and_the_rest_is_infinite(seconds, first):
    buckets = Buckets((0.5, 1))
    buckets.observe(seconds)
    found = rows(buckets.family("x", "X."))
    reached = [bound for bound in ("0.5", "1.0", "+Inf") if found["x_bucket", bound] == 1]
    assert reached[0] == first
    assert reached[-1] == "+Inf"


@given(st.lists(st.floats(0, 100)))
def test_buckets_are_cumulative_and_add_up(samples):
    buckets = Buckets((1, 10, 50))
    for seconds in samples:
        buckets.observe(seconds)
    found = rows(buckets.family("x", "X."))
    assert found["x_count", None] == found["x_bucket", "+Inf"] == len(samples)
    assert found["x_sum", None] == pytest.approx(sum(samples))
    for bound in (1.0, 10.0, 50.0):
        assert found["x_bucket", str(bound)] == sum(seconds <= bound for seconds in samples)


def test_counts_carry_their_label():
    class Why(StrEnum):
        A = "a"
        B = "b"

    counts = {why: Count() for why in Why}
    counts[Why.B].inc()
    family = counter_family("things_total", "Things.", "why", counts)
    assert [(sample.name, sample.labels, sample.value) for sample in family.samples] == [
        ("things_total", {"why": "a"}, 0),
        ("things_total", {"why": "b"}, 1),
    ]
