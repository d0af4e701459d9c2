"""A request's head, read strictly and pure: what two readers could understand in two ways is refused (RFC 9112, RFC
9110). Legal and kept: absolute-form targets, repeated list headers, extension headers in the caller's own order.
"""

import re
from dataclasses import dataclass

from farmwire.reasons import Refusal

from farmproxy.door.refusals import Refused

HEAD_LIMIT = 16 * 1024  # bytes; a browser's largest cookies and a long token fit
FIELDS_LIMIT = 100

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_REQUEST_LINE = re.compile(rb"(%b{1,32}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_FIELD = re.compile(rb"(%b+):([\t\x20-\x7e\x80-\xff]*)" % _TOKEN)
_STARTS = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_ABSOLUTE = re.compile(rb"(?:https?|wss?)://([^/?#]*)(.*)", re.IGNORECASE)
_HOST = re.compile(rb"(?:[0-9A-Za-z._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SINGLE = frozenset({b"host", b"content-length", b"transfer-encoding"})
_BARE_NEWLINE = re.compile(rb"(?<!\r)\n|\r(?!\n)")


@dataclass(slots=True)
class Head:
    """``fields`` are (name in lower case, value, the line as sent); ``host`` is the authority the caller meant;
    ``path`` and ``query`` come from the target, ``query`` is None where there is no "?".
    """

    method: bytes
    path: bytes
    query: bytes | None
    old: bool  # HTTP/1.0
    host: bytes
    fields: list[tuple[bytes, bytes, bytes]]
    content_length: int = 0
    chunked: bool = False

    def value(self, name: bytes) -> bytes | None:
        """The first value of this header, or None."""
        for known, value, _ in self.fields:
            if known == name:
                return value
        return None

    def has_token(self, name: bytes, token: bytes) -> bool:
        """Whether the list that all headers of this name make up holds the token, whatever its case."""
        for known, value, _ in self.fields:
            if known == name and token in [item.strip() for item in value.lower().split(b",")]:
                return True
        return False


def end_of(buffer: bytearray) -> int:
    """Where the head ends (its empty line included), or -1 while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    return end + 4 if end >= 0 else -1


def check_part(buffer: bytearray) -> None:
    """Raise Refused for an incomplete head that no further byte can make good."""
    if len(buffer) >= HEAD_LIMIT:
        raise _too_large()
    if buffer and buffer[0] not in _STARTS and buffer[0] != 0x0D:
        raise _bad("this is no HTTP request")
    if b"\0" in buffer or b"\n" in buffer:
        _check_newlines(buffer)
        lines = bytes(buffer).split(b"\r\n")[:-1]
        if lines:
            _request_line(lines[0])
            _fields(lines[1:])


def parse(head: bytes) -> Head:
    """Read a complete head, its empty line included. Refused says why it is refused."""
    if len(head) > HEAD_LIMIT:
        raise _too_large()
    _check_newlines(head)
    lines = head[:-4].split(b"\r\n")
    method, target, old = _request_line(lines[0])
    fields = _fields(lines[1:])
    found = Head(method, b"", None, old, b"", fields)
    _read_singles(found)
    _read_target(found, target)
    return found


def for_pod(head: Head, target: bytes, host: bytes, *, drop: frozenset[bytes]) -> bytes:
    """The head as the pod gets it: its own Host, origin-form target, without ``drop`` and any Farm- header."""
    kept = [line for name, _, line in head.fields if name not in drop and not name.startswith(b"farm-")]
    start = b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (head.method, target, host)
    return start + b"\r\n".join(kept) + (b"\r\n\r\n" if kept else b"\r\n")


def _request_line(line: bytes) -> tuple[bytes, bytes, bool]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise _bad("the request line is not METHOD TARGET HTTP/1.1")
    method, target, major, minor = match.groups()
    if major != b"1":
        raise Refused(Refusal.HTTP_VERSION, "only HTTP/1.1 is spoken here")
    return method, target, minor == b"0"


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
    if len(lines) > FIELDS_LIMIT:
        raise Refused(Refusal.HEAD_TOO_LARGE, f"more than {FIELDS_LIMIT} header lines")
    fields: list[tuple[bytes, bytes, bytes]] = []
    singles = 0
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise _bad(
                "a folded header line" if line[:1] in {b" ", b"\t"} else "a header line is not NAME: VALUE"
            )
        name, value = match.groups()
        name = name.lower()
        if name in _SINGLE:
            singles += 1
            if singles > 1:
                _check_single(fields, name)
        fields.append((name, value.strip(b" \t"), line))
    return fields


def _check_single(fields: list[tuple[bytes, bytes, bytes]], name: bytes) -> None:
    if any(known == name for known, _, _ in fields):
        raise _bad(f"{name.decode()} stands there twice")


def _read_singles(head: Head) -> None:
    singles = {name: value for name, value, _ in head.fields if name in _SINGLE}
    length = singles.get(b"content-length")
    encoding = singles.get(b"transfer-encoding")
    if length is not None:
        if encoding is not None:
            raise _bad("both content-length and transfer-encoding")
        if not length.isdigit() or len(length) > 18:
            raise _bad("content-length is no number")
        head.content_length = int(length)
    if encoding is not None:
        if encoding.lower() != b"chunked" or head.old:
            raise _bad("the only transfer-encoding is chunked, in HTTP/1.1")
        head.chunked = True
    host = singles.get(b"host")
    if host is None and not head.old:
        raise _bad("no host header")
    if host and not _HOST.fullmatch(host):
        raise _bad("the host header is no host")
    head.host = host or b""


def _read_target(head: Head, target: bytes) -> None:
    if b"#" in target:
        raise _bad("a fragment in the target")
    if not target.startswith(b"/"):
        match = _ABSOLUTE.fullmatch(target)
        if match is None:
            raise _bad("the target is neither a path nor an absolute URL")
        authority, target = match.groups()
        if not _HOST.fullmatch(authority):
            raise _bad("the target's authority is no host")
        head.host = authority  # RFC 9112, 3.2.2: the Host header is ignored then
        if not target.startswith(b"/"):
            target = b"/" + target
    if not head.host and not head.old:
        raise _bad("the host header is empty")
    path, mark, query = target.partition(b"?")
    head.path = path
    head.query = query if mark else None


def _check_newlines(text: bytes | bytearray) -> None:
    # A trailing CR may be half of a CRLF that is still on its way.
    if _BARE_NEWLINE.search(text, 0, len(text) - 1 if text.endswith(b"\r") else len(text)) or b"\0" in text:
        raise _bad("a bare newline or NUL in the head")


def _bad(detail: str) -> Refused:
    return Refused(Refusal.BAD_REQUEST, detail)


def _too_large() -> Refused:
    return Refused(Refusal.HEAD_TOO_LARGE, f"the head is longer than {HEAD_LIMIT} bytes")
