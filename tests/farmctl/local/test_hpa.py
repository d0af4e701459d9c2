"""The autoscaler's formula against kube-controller-manager's: numbers measured on a real one where there are some."""

import pytest

from farmctl.testbeds.hpa import Autoscaler, Bounds, per_pod


def sync(scaler, metric, pods, now, status=None):
    return scaler.sync(metric=metric, spec_pods=pods, status_pods=pods if status is None else status, now=now)


@pytest.mark.parametrize(
    ("metric", "target", "pods", "wanted"),
    [
        (0, 1, 4, 0),
        (4, 1, 4, 4),
        (6, 1, 4, 6),
        (5.2, 1, 4, 6),  # rounded up
        (7, 2, 4, 4),  # ratio 0.875: outside the tolerance, ceil(3.5)
        (11, 1, 10, 10),  # within the tolerance of 0.1: never scales
        (12, 1, 10, 12),
        (11, 1, 12, 12),
        (9, 1, 10, 10),
        (0, 1, 0, 0),
        (3, 1, 0, 3),  # from zero
    ],
)
def test_pods_by_average_value(metric, target, pods, wanted):
    assert per_pod(metric, target, pods) == wanted


def test_busy_pods_do_not_shrink_the_farm():
    # ready pods are no part of the formula, so a farm whose pods are all busy grows.
    scaler = Autoscaler(Bounds(1, 40))
    assert sync(scaler, 20, 10, now=0).pods == 20


def test_surge_never_asks_for_fewer_than_the_demand():
    # 10 replicas wanted, up to 15 exist during a rollout, demand 10.
    for status in range(10, 16):
        scaler = Autoscaler(Bounds(1, 40, scale_down_wait_s=0))
        assert sync(scaler, 10, 10, now=0, status=status).pods >= 10


@pytest.mark.parametrize("pods", [1, 4, 8])
def test_absent_metric_scales_nothing(pods):
    scaler = Autoscaler(Bounds(1, 8, scale_down_wait_s=0))
    verdict = sync(scaler, None, pods, now=0)
    assert (verdict.pods, verdict.reason) == (pods, "FailedGetExternalMetric")


def test_bounds_win():
    assert sync(Autoscaler(Bounds(2, 8)), None, 1, now=0).pods == 2
    assert sync(Autoscaler(Bounds(2, 8)), None, 9, now=0).pods == 8
    assert sync(Autoscaler(Bounds(2, 8, scale_down_wait_s=0)), 0, 4, now=0).pods == 2
    assert sync(Autoscaler(Bounds(2, 8)), 100, 6, now=0).pods == 8


def test_farm_scaled_to_zero_by_hand_stays_there():
    verdict = sync(Autoscaler(Bounds(1, 8)), 5, 0, now=0)
    assert (verdict.pods, verdict.reason) == (0, "ScalingDisabled")


def test_from_zero_when_zero_is_the_minimum():
    assert sync(Autoscaler(Bounds(0, 8)), 3, 0, now=0).pods == 3


def test_growth_is_limited_by_period():
    scaler = Autoscaler(Bounds(1, 200))
    assert sync(scaler, 100, 1, now=0).pods == 5  # +4 a period is more than double
    assert sync(scaler, 100, 5, now=5).pods == 5  # the period's growth is used up
    assert sync(scaler, 100, 5, now=15).pods == 10  # double is more than +4


def test_scale_down_waits_for_the_window_after_the_last_higher_word():
    scaler = Autoscaler(Bounds(1, 8, scale_down_wait_s=30))
    assert sync(scaler, 8, 8, now=0).pods == 8
    assert sync(scaler, 2, 8, now=15).pods == 8
    assert sync(scaler, 2, 8, now=29).pods == 8
    assert sync(scaler, 2, 8, now=30).pods == 2


def test_scale_down_takes_the_highest_word_of_the_window():
    scaler = Autoscaler(Bounds(1, 8, scale_down_wait_s=30))
    sync(scaler, 8, 8, now=0)
    sync(scaler, 5, 8, now=20)
    assert sync(scaler, 1, 8, now=31).pods == 5


def test_new_autoscaler_does_not_shrink_at_once():
    scaler = Autoscaler(Bounds(1, 8, scale_down_wait_s=30))
    assert sync(scaler, 1, 6, now=0).pods == 6
