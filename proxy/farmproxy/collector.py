"""Python's cycle collector, set for a process whose objects die by reference count alone: sessions leave no cycles, so
whole-heap collections would be pauses that find nothing (tens of milliseconds with thousands of sessions).

The rule: it stays on, because the watch and the admin port may leave a cycle, but looks rarely and only at what is new.
"""

import gc

# 10,000 new containers before a look at the young, ten of those for the middle-aged, ten of these for all.
_THRESHOLDS = (10_000, 10, 10)


def settle() -> None:
    """Call it once when everything that lives as long as the process exists: it is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
