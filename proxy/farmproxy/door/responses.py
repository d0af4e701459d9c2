"""The door's own answers as bytes. A refusal is JSON {"reason","detail","retry_after_s"} and ends the connection."""

from http import HTTPStatus
from typing import Any

import msgspec
from farmwire import headers, paths
from farmwire.reasons import ANSWERS, Refusal

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_encode = msgspec.json.Encoder().encode


def refusal(reason: Refusal, detail: str = "", *, bare: bool = False) -> bytes:
    """Status, Retry-After and body of this reason; ``bare`` for HEAD."""
    answer = ANSWERS[reason]
    told = {"reason": reason, "detail": detail, "retry_after_s": answer.retry_after_s}
    extra = b"" if answer.retry_after_s is None else b"Retry-After: %d\r\n" % answer.retry_after_s
    return _whole(answer.status, answer.phrase, _encode(told), extra, close=True, bare=bare)


def passed_on(status: int, body: bytes) -> bytes:
    """An agent's own 4xx that concerns the caller."""
    return _whole(status, _phrase(status), body, b"", close=True)


def ok(value: Any, *, status: int = 200, close: bool = False, bare: bool = False) -> bytes:
    """A JSON answer."""
    return _whole(status, _phrase(status), _encode(value), b"", close=close, bare=bare)


def nothing(*, close: bool = False) -> bytes:
    """204, as DELETE is answered."""
    return b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n%b\r\n" % (_CLOSE if close else b"")


def preflight(wanted: bytes | None, *, close: bool = False) -> bytes:
    """204 to a browser's question before a page's request; ``wanted``: the headers that the page would send."""
    return (
        b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE\r\n"
        b"Access-Control-Allow-Headers: %b\r\nAccess-Control-Max-Age: %d\r\n%b\r\n"
        % (wanted or b"Authorization, Content-Type", _PREFLIGHT_S, _CLOSE if close else b"")
    )


def readable(answer: bytes, origin: bytes) -> bytes:
    """The same answer, readable by web pages of this allowed Origin."""
    start, end, rest = answer.partition(b"\r\n")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.readable_by(origin.decode("latin-1")))
    return b"".join((start, end, lines.encode("latin-1"), rest))


def version(learnt: dict[str, str], host: str, query: bytes | None, *, secure: bool) -> dict[str, str]:
    """Body of /json/version: each connection to its socket URL is a lease of its own, the query (token too) kept."""
    scheme = "wss" if secure else "ws"
    rest = "?" + query.decode("ascii") if query else ""
    return {**learnt, "webSocketDebuggerUrl": f"{scheme}://{host}{paths.FARM_BROWSER}{rest}"}


_CLOSE = b"Connection: close\r\n"
_PREFLIGHT_S = 600  # a browser asks no more often; an Origin that is no longer allowed gets 403 all the same


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _whole(status: int, phrase: str, body: bytes, extra: bytes, *, close: bool, bare: bool = False) -> bytes:
    return (
        b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n%b%b\r\n%b"
        % (
            status,
            phrase.encode(),
            len(body),
            extra,
            _CLOSE if close else b"",
            b"" if bare else body,
        )
    )
