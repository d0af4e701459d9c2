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
        wrapper_class=_lines_from(level),
        logger_factory=lambda *_: LineWriter(stream or sys.stdout.buffer),
        cache_logger_on_first_use=False,
    )
    log = cast("FilteringBoundLogger", structlog.get_logger().bind())  # bound: not made anew for each line
    logging.basicConfig(handlers=[_Bridge(log)], level=logging.WARNING, force=True)
    return log


def _lines_from(level: int) -> type[Any]:
    """The logger with one step for all its processors, because a line is written for every lease."""

    class Lines(structlog.make_filtering_bound_logger(level)):  # type: ignore[misc]  # a class made at run time
        def _proxy_to_logger(self, method: str, event: str | None = None, **fields: Any) -> None:
            self._logger.msg(_line(method, event or "", {**self._context, **fields}))

    return Lines


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


def _line(method: str, event: str, fields: MutableMapping[str, Any]) -> bytes:
    if "exc_info" in fields:
        fields = structlog.processors.format_exc_info(None, method, fields)
    line = {"event": event, "t": round(time.time(), 6), **fields, "level": method}
    try:
        return _ENCODER.encode(line)
    except Exception:  # lone surrogates, keys that are no text, a __str__ that raises
        return _ENCODER.encode({"event": "unloggable", "t": line["t"], "detail": ascii(line)[:2000]})
