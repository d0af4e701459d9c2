"""Waits for a state: asked again and again until it holds, with a limit and a message that says what was missing."""

import time
from collections.abc import Callable
from typing import TypeVar

from farmctl.errors import StageError

T = TypeVar("T")
PAUSE_S = 0.5


def wait_for(
    state: Callable[[], T | None], what: str, *, timeout_s: float, hint: str = "", pause_s: float = PAUSE_S
) -> T:
    """Ask until ``state`` is true-ish. Raises StageError naming ``what``, and the last fault, when time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        problem = ""
        try:
            if value := state():
                return value
        except StageError as error:
            problem = f": {error}"
        if time.monotonic() > deadline:
            raise StageError(f"waited {timeout_s:.0f} s in vain until {what}{problem}", hint=hint)
        time.sleep(pause_s)
