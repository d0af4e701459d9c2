"""JSON lines on stdout, one event a line: {"event", "t" (unix seconds), ...}. No key, token or URL of a caller.

The rule: a line is written whole or not at all, and a reader that is gone never ends the agent.
"""

import sys
import time
import traceback
from contextlib import suppress
from typing import Any

import msgspec


class EventLog:
    """Three levels, as words in the line only where they are not the usual one."""

    def info(self, event: str, **fields: Any) -> None:
        self._write(event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(event, {"level": "warning", **fields})

    def error(self, event: str, **fields: Any) -> None:
        self._write(event, {"level": "error", **fields})

    def exception(self, event: str, **fields: Any) -> None:
        """Inside an except block: the traceback goes along."""
        self.error(event, **fields, traceback=traceback.format_exc())

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        line = msgspec.json.encode({"event": event, "t": round(time.time(), 3), **fields}, enc_hook=str)
        with suppress(OSError, ValueError):
            sys.stdout.write(line.decode() + "\n")
            sys.stdout.flush()


log = EventLog()
