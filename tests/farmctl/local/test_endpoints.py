"""Pods folded into slices, and words about pods that arrive late."""

from farmctl.testbeds.local.control_plane.endpoints import Endpoint, Lag, SliceSet


def pod(n, **changes):
    return Endpoint(
        **{"name": f"p{n}", "uid": f"u{n}", "ip": f"127.0.9.{n}", "node": "node-a", "ready": True} | changes
    )


def test_at_most_a_hundred_endpoints_a_slice():
    slices = SliceSet()
    for n in range(201):
        slices.apply(pod(n))
    assert sorted(len(pods) for pods in slices.slices.values()) == [1, 100, 100]


def test_pod_stays_in_its_slice_and_a_gap_is_filled():
    slices = SliceSet(size=2)
    for n in range(4):
        slices.apply(pod(n))
    assert slices.remove("u0") == {0}
    assert slices.apply(pod(3, ready=False)) == {1}
    assert slices.apply(pod(9)) == {0}


def test_unchanged_pod_touches_no_slice():
    slices = SliceSet()
    slices.apply(pod(1))
    assert slices.apply(pod(1)) == set()
    assert slices.remove("nobody") == set()


def test_empty_slice_goes():
    slices = SliceSet(size=1)
    slices.apply(pod(1))
    slices.apply(pod(2))
    assert slices.remove("u2") == {1}
    assert list(slices.slices) == [0]


def test_terminating_pod_is_never_ready_but_serves():
    # what the controller writes for a pod that drains
    assert pod(1, terminating=True).conditions() == {"ready": False, "serving": True, "terminating": True}


def test_word_arrives_after_its_delay_in_order():
    lag = Lag(delay_s=5)
    lag.say("u1", pod(1), now=0)
    lag.say("u1", pod(1, ready=False), now=2)
    assert lag.next_at() == 5
    assert lag.due(4.9) == []
    assert lag.due(5) == [("u1", pod(1))]
    assert lag.due(7) == [("u1", pod(1, ready=False))]
    assert lag.next_at() is None


def test_shortened_delay_lets_no_older_word_win():
    lag = Lag(delay_s=60)
    lag.say("u1", pod(1), now=0)
    lag.say("u2", pod(2), now=0)
    lag.set_delay(10, now=1)
    lag.say("u1", None, now=1)
    assert lag.due(10.9) == []
    assert lag.due(11) == [("u1", pod(1)), ("u2", pod(2)), ("u1", None)]
    lag.delay_s = 60
    lag.say("u1", pod(1), now=20)
    lag.delay_s = 0
    lag.say("u1", None, now=20)
    assert lag.due(20) == [("u1", None)]
    assert lag.next_at() is None
