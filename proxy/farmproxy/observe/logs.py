"""JSON lines on stdout, one event a line: {"event", "t", "level", ...}. A log never fails its caller and never makes it
wait: a closed or full stdout loses lines, not sessions.
"""

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any, BinaryIO, cast

import msgspec
import structlog
from farmwire.lines import LineWriter
from structlog.typing import FilteringBoundLogger

_WRITERS: list[LineWriter] = []  # the process's one, once it is configured
_ENCODER = msgspec.json.Encoder(enc_hook=str)


def configure(stream: BinaryIO | None = None, level: int = logging.INFO) -> FilteringBoundLogger:
    """The process's log; the standard library's loggers (asyncio, aiohttp) speak through it from WARNING on, and so do
    Python's own warnings, because standard error may be a pipe that nobody reads.
    """
    writer = LineWriter(stream or sys.stdout.buffer)
    _WRITERS[:] = [writer]
    structlog.configure(
        wrapper_class=_lines_from(level),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    log = cast("FilteringBoundLogger", structlog.get_logger().bind())  # bound: not made anew for each line
    logging.basicConfig(handlers=[_Bridge(log)], level=logging.WARNING, force=True)
    logging.captureWarnings(capture=True)
    return log


def flush() -> None:
    """Write what a slow reader has not taken yet, as far as it takes it now."""
    for writer in _WRITERS:
        writer.flush()


def dropped() -> int:
    """Lines lost to a reader that is behind or gone."""
    return sum(writer.dropped for writer in _WRITERS)


def _lines_from(level: int) -> type[Any]:
    """The logger with one step for all its processors, because a line is written for every lease."""

    class Lines(structlog.make_filtering_bound_logger(level)):  # type: ignore[misc]  # a class made at run time
        def _proxy_to_logger(self, method: str, event: str | None = None, **fields: Any) -> None:
            self._logger.write(_line(method, event or "", {**self._context, **fields}))

    return Lines


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
