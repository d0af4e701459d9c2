"""The core's error tree: what its only caller, the driver, did or what the core itself got wrong."""


class CoreError(Exception):
    """Root of what the core raises."""


class IllegalEvent(CoreError):
    """The event cannot happen now (unknown id, pool or pod, or the wrong moment). Nothing was changed."""


class IllegalTransition(CoreError):
    """A pod was asked to move along an edge that the table does not have: a fault of the core."""


class BrokenInvariant(CoreError):
    """``check_invariants`` found the books wrong: a fault of the core."""
