import json

import pytest

from farmctl.testbeds.kind.install.rolling import Rollout, unavailable


@pytest.mark.parametrize(
    ("wanted", "new", "fine", "old", "step"),
    [
        (4, 2, 2, 3, 2),  # where the controller stops by itself with 25 % and 25 %
        (4, 3, 3, 2, 3),
        (4, 4, 4, 1, 4),
        (4, 4, 4, 0, None),  # over
        (4, 2, 1, 3, None),  # a new pod is not fine: a broken image stops here
        (4, 0, 0, 4, None),  # nothing new yet
        (1, 1, 1, 1, 1),
        (100, 50, 50, 75, 50),
    ],
)
def test_next_step(wanted, new, fine, old, step):
    assert unavailable(wanted=wanted, new=new, fine=fine, old=old) == step


def controller(old: int, new: int, wanted: int, most_unavailable: int) -> tuple[int, int]:
    """One settling of the Deployment controller with every pod in use, so none available (reconcileOldReplicaSets:
    it removes all - minAvailable - newUnavailable old pods, then fills up to wanted plus the surge)."""
    surge = -(-wanted // 4)
    while True:
        removed = min(old, max(0, old + new - (wanted - most_unavailable) - new))
        added = max(0, min(wanted - new, wanted + surge - (old - removed) - new))
        if not removed and not added:
            return old, new
        old, new = old - removed, new + added


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 5, 7, 10, 100])
def test_saturated_farm_is_rolled_over_a_quarter_at_a_time(wanted):
    quarter = wanted // 4
    old, new = controller(wanted, 0, wanted, quarter)
    assert old > 0  # it stops by itself: that is the fault
    drained_at_once = 0
    for _ in range(wanted + 1):
        step = unavailable(wanted=wanted, new=new, fine=new, old=old)
        if step is None:
            break
        before = old
        old, new = controller(old, new, wanted, step)
        drained_at_once = max(drained_at_once, before - old)
    assert (old, new) == (0, wanted)
    assert drained_at_once <= -(-wanted // 4)


class Patched:
    def __init__(self):
        self.values = []

    def __call__(self, *words, **_):
        change = json.loads(words[words.index("-p") + 1])
        self.values.append(change["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"])


def test_steps_only_go_up_and_the_strategy_is_put_back():
    kubectl = Patched()
    rollout = Rollout(kubectl, "farm")
    rollout.leave()
    assert kubectl.values == []  # nothing was changed, nothing is put back
    for new, old in ((2, 3), (2, 3), (3, 2), (4, 1), (4, 0)):
        rollout.go_on(wanted=4, new=new, fine=new, old=old)
    assert kubectl.values == [2, 3, 4]
    rollout.leave()
    assert kubectl.values == [2, 3, 4, "25%"]
