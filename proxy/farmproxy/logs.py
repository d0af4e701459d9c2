"""JSON lines on stdout, one event a line: {"event", "t", "level", ...}. A log never fails its caller: a closed or full
stdout loses lines, not sessions.
"""

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any, BinaryIO, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

_ENCODER = msgspec.json.Encoder(enc_hook=str)


def configure(stream: BinaryIO | None = None, level: int = logging.INFO) -> FilteringBoundLogger:
    """The process's log; the standard library's loggers (asyncio, aiohttp) speak through it from WARNING on."""
    structlog.configure(
        processors=[_line],  # one step: a line is written for every lease
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: LineWriter(stream or sys.stdout.buffer),
        cache_logger_on_first_use=False,
    )
    log = cast("FilteringBoundLogger", structlog.get_logger().bind())  # bound: not made anew for each line
    logging.basicConfig(handlers=[_Bridge(log)], level=logging.WARNING, force=True)
    return log


class LineWriter:
    """Writes finished lines; what cannot be written is dropped."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def msg(self, line: bytes) -> None:
        try:
            self._stream.write(line + b"\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: I/O operation on closed file
            return

    debug = info = warning = error = critical = exception = log = fatal = msg


class _Bridge(logging.Handler):
    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            detail = record.getMessage()
        except (TypeError, ValueError):
            detail = str(record.msg)
        self._log.log(record.levelno, "library", logger=record.name, detail=detail, exc_info=record.exc_info)


def _line(logger: Any, method: str, event: MutableMapping[str, Any]) -> bytes:
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, method, event)
    line = {"event": event.pop("event", ""), "t": round(time.time(), 6), **event, "level": method}
    try:
        return _ENCODER.encode(line)
    except Exception:  # lone surrogates, keys that are no text, a __str__ that raises
        return _ENCODER.encode({"event": "unloggable", "t": line["t"], "detail": ascii(line)[:2000]})
