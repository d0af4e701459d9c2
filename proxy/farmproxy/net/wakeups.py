"""The one timer that the core asks for, on the event loop."""

import asyncio
from collections.abc import Callable


class Wakeup:
    """Calls ``ring`` at or soon after the moment last set. A later moment than the one that is set is not taken:
    setting is cheap, and the core, woken early, asks for it again.
    """

    __slots__ = ("_at", "_handle", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._at = float("inf")
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        if self._handle is not None:
            if at >= self._at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_at(at, self._rings)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rings(self) -> None:
        self._handle = None
        self._at = float("inf")
        self._ring()
