"""Pauses before an attempt: doubling, jittered, capped, never sooner than asked."""

from farmproxy.kube.restarts import LONGEST_PAUSE_S, LONGEST_RETRY_AFTER_S, Backoff


def test_pauses_double_up_to_the_cap():
    backoff = Backoff(uniform=lambda _low, high: high)
    pauses = [backoff.next_pause_s(None) for _ in range(12)]
    assert pauses[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert pauses[-1] == LONGEST_PAUSE_S
    backoff.healthy()
    assert backoff.next_pause_s(None) == 0.1


def test_pauses_are_jittered():
    backoff, ranges = Backoff(uniform=lambda low, high: ranges.append((low, high)) or low), []
    backoff.next_pause_s(None)
    assert ranges == [(0.05, 0.1)]
    real = Backoff()
    assert len({(real.healthy(), real.next_pause_s(None)) for _ in range(20)}) > 10


def test_retry_after_is_the_least_and_has_a_limit():
    backoff = Backoff(uniform=lambda _low, high: high)
    assert backoff.next_pause_s(5) == 5.1
    assert backoff.next_pause_s(-3) == 0.2
    assert backoff.next_pause_s(1e9) == LONGEST_RETRY_AFTER_S + 0.4


def test_failures_without_end_do_not_overflow():
    backoff = Backoff()
    backoff.failures = 10**6
    assert backoff.next_pause_s(None) <= LONGEST_PAUSE_S
