"""Which free pod a caller gets. Rule: constant time however many pods are free, and the incarnation that just
failed a caller is avoided only while another one is free.

Two orders are offered; docs/decisions records which is the default and why. Longest free spreads the jobs
evenly over the pods; most recently confirmed prefers pods whose agent or slice spoke last, so that fewer dead ones
are dialled when slices are stale.
"""

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum

from farmproxy.core.events import PodKey
from farmproxy.core.pods import Pod


class Choice(Enum):
    LONGEST_FREE = "longest-free"
    MOST_RECENTLY_CONFIRMED = "most-recently-confirmed"


class FreePods:
    """The free pods of a pool in one order: the time they turned free or, for the second choice, were last
    confirmed. An OrderedDict is a linked list, so both ends are found at once whatever was removed.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._order: OrderedDict[PodKey, Pod] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._order

    def add(self, pod: Pod) -> None:
        self._order[pod.key] = pod

    def remove(self, pod: Pod) -> None:
        del self._order[pod.key]

    def confirm(self, pod: Pod) -> None:
        """Agent or slice said again that this free pod is free."""
        if self._choice is Choice.MOST_RECENTLY_CONFIRMED:
            self._order.move_to_end(pod.key)

    def choose(self, avoid: PodKey | None) -> Pod:
        """The pod to dial; it stays until removed. Only when one is free."""
        newest_first = self._choice is Choice.MOST_RECENTLY_CONFIRMED
        order: Iterable[PodKey] = reversed(self._order) if newest_first else self._order
        keys = iter(order)
        key = next(keys)
        if key == avoid:
            key = next(keys, key)
        return self._order[key]
