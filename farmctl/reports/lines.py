"""Progress as plain lines on stderr, for logs and pipes: one line a moment, none for a caller's every step."""

import sys
from typing import TextIO

from farmctl.scenarios.results import Check, Fate, Moment, Result


class Lines:
    """A Listener. Callers are counted at the end of their scenario rather than told one by one."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr

    def began(self, name: str, claim: str, number: int, total: int) -> None:
        self._say(f"[{number}/{total}] {name}: {claim}")

    def moment(self, moment: Moment) -> None:
        self._say(f"  {moment.at_ms / 1000:7.2f} s  {moment.kind:6} {moment.text}")

    def caller(self, fate: Fate) -> None:
        if fate.errors and fate.outcome != "unfinished":
            self._say(f"             caller {fate.caller}: {fate.outcome} after {fate.errors[-1]}")

    def checked(self, check: Check) -> None:
        pass  # the timeline has it

    def ended(self, result: Result) -> None:
        because = f": {result.reason}" if result.reason else ""
        self._say(f"  {result.verdict.upper()} {result.name} in {result.duration_s:.1f} s{because}")

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)
