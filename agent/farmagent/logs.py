"""JSON lines on stdout, one event a line: {"event", "t" (unix seconds), ...}. No key, token or URL of a caller.

The rule: a line is written whole or not at all, and a reader that is slow or gone never stops the agent.
"""

import sys
import time
import traceback
from typing import Any

import msgspec
from farmwire.lines import LineWriter


class EventLog:
    """Three levels, as words in the line only where they are not the usual one."""

    def __init__(self) -> None:
        self._stream: object = None
        self._writer: LineWriter | None = None

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
        if self._writer is None or self._stream is not sys.stdout:
            self._stream, self._writer = sys.stdout, LineWriter(sys.stdout)
        self._writer.write(line)

    def flush(self) -> None:
        """Write what a slow reader has not taken yet, as far as it takes it now."""
        if self._writer is not None:
            self._writer.flush()

    @property
    def dropped(self) -> int:
        """Lines lost to a reader that is behind or gone."""
        return 0 if self._writer is None else self._writer.dropped


log = EventLog()
