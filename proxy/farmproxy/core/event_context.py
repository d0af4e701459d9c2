"""One event being handled: its time, the commands it has brought so far, and the timers it may set."""

from collections.abc import Callable
from typing import Any

from farmproxy.core.commands import Command
from farmproxy.core.timers import Timer, Timers


class Turn:
    """Shared by all parts of a farm, because one event is handled at a time."""

    __slots__ = ("now", "out", "timers")

    def __init__(self) -> None:
        self.now = 0.0
        self.out: list[Command] = []
        self.timers = Timers()

    def begin(self, now: float) -> list[Command]:
        self.now = now
        self.out = []
        return self.out

    def do(self, command: Command) -> None:
        self.out.append(command)

    def after(self, delay_s: float, act: Callable[[Any], None], arg: Any) -> Timer:
        return self.timers.set(self.now + delay_s, act, arg)
