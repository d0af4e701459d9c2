"""How a lease ended: what the proxy saw, corrected by what its agent says (pure)."""

from farmwire.reasons import End

# What the proxy cannot tell from outside: whether Chrome died, the agent drained, or the job was simply done.
_GUESSES = frozenset({End.DONE, End.POD_LOST})


def settled(seen: End, *, by_pod: bool, told: End | None, reached: bool) -> End:
    """``told`` is the agent's word, None when it gave none; ``reached``: its machine answered at all.

    The agent's word is final but for ``done``: that only says that the connection closed, and the proxy may know why.
    """
    if told is None:
        return End.POD_LOST if by_pod and not reached else seen
    if told is End.DONE and seen not in _GUESSES:
        return seen
    return told
