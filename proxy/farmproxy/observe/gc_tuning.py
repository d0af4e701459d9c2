"""Python's cycle collector, set for a process whose objects die by reference count alone: sessions leave no cycles, so
whole-heap collections would be pauses that find nothing (tens of milliseconds with thousands of sessions).

The rule: it stays on, because the watch and the admin port may leave a cycle, but looks rarely and only at what is new.
"""

import gc

# 50,000 more containers than before a look at the young, 20 of those for the middle-aged, 20 of these for all. At 1,160
# leases a second of 7 s each this took 1 % of a core; a fifth of it took twice that.
_THRESHOLDS = (50_000, 20, 20)


def settle() -> None:
    """Call it once the modules are loaded: what exists now is never looked at again. What ``lifecycle`` makes, it freezes itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
