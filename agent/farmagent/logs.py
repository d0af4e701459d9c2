"""JSON lines on stdout, one event a line: {"event", "t" (unix seconds), ...}. No key, token or URL of a caller."""

import sys
import time
from collections.abc import MutableMapping
from typing import Any

import msgspec
import structlog


def _stamp(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {"event": event.pop("event"), "t": round(time.time(), 3), **event}


def _line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def to_stdout() -> None:
    structlog.configure(
        processors=[_stamp, _line],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stdout),
        wrapper_class=structlog.BoundLogger,
        cache_logger_on_first_use=True,
    )


log: Any = structlog.get_logger()
