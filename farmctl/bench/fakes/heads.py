"""HTTP/1.1 heads as the generators read and write them: just enough for the two proxies under test.

Both proxies may change the case of header names, so names are compared in lower case.
"""

from collections.abc import Mapping

END = b"\r\n\r\n"
# The key and its answer from RFC 6455, section 1.3: HAProxy checks that a WebSocket's 101 carries one.
WS_KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
WS_ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
WORK = b"x-bench"  # the caller's wishes for the fake pod: "session_ms=50;bytes=500"


def header(head: bytes, lowered: bytes, name: bytes) -> bytes:
    """Return the value of the header (``lowered`` is head.lower()), or b"" where it is not."""
    start = lowered.find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip()


def target(head: bytes) -> tuple[bytes, bytes]:
    """Return the request's path and query."""
    path, _, query = head[: head.index(b"\r\n")].split(b" ")[1].partition(b"?")
    return path, query


def pairs(text: bytes, separator: bytes) -> dict[bytes, bytes]:
    """Read ``a=1;b=2`` (or a query with ``&``)."""
    return dict(part.partition(b"=")[::2] for part in text.split(separator) if part)


def work(wishes: Mapping[str, float | int | str]) -> bytes:
    """Write the caller's wishes as the header's value."""
    return ";".join(f"{key}={value}" for key, value in wishes.items()).encode()


def answer(status: bytes, body: bytes = b"", extra: bytes = b"", *, close: bool = False) -> bytes:
    """Build a whole answer; ``extra`` is header lines, each ended by CRLF."""
    keep = b"Connection: close\r\n" if close else b""
    return b"HTTP/1.1 %b\r\n%b%bContent-Length: %d\r\n\r\n%b" % (status, extra, keep, len(body), body)
