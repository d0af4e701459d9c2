"""Probe results to verdicts, crashes to delays."""

from farmctl.testbeds.local.control_plane.probes import Backoff, Probe


def test_threshold_counts_failures_in_a_row():
    probe = Probe(threshold=3, verdict=True)
    results = [False, False, True, False, False, False, False]
    assert [(probe.saw(result), probe.verdict) for result in results] == [
        (False, True),
        (False, True),
        (False, True),
        (False, True),
        (False, True),
        (True, False),
        (False, False),
    ]


def test_one_success_is_enough():
    probe = Probe(threshold=3, verdict=False)
    assert probe.saw(True)
    assert probe.verdict


def test_restart_delay_grows_to_five_minutes_and_is_forgotten():
    backoff = Backoff()
    assert [backoff.after_exit(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.after_exit(600) == 0
