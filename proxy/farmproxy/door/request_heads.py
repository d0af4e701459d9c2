"""A request's head, read strictly and pure: what two readers could understand in two ways is refused (RFC 9112, RFC
9110). Legal and kept: absolute-form targets, repeated list headers, extension headers in the caller's own order.
"""

import re
from dataclasses import dataclass

from farmwire import bounds
from farmwire.reasons import Refusal

from farmproxy.door.refusals import Refused

HEAD_LIMIT = bounds.HEAD_BYTES
FIELDS_LIMIT = 100

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_REQUEST_LINE = re.compile(rb"(%b{1,32}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_FIELD = re.compile(rb"(?m)^((%b+):([\t\x20-\x7e\x80-\xff]*)\r\n)" % _TOKEN)
_STARTS = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_ABSOLUTE = re.compile(rb"(?:https?|wss?)://([^/?#]*)(.*)", re.IGNORECASE)
_HOST = re.compile(
    rb"(?:[0-9A-Za-z._~!$&'()*+,;=%%-]{1,%d}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?" % bounds.HOST_CHARS
)
_SINGLE = frozenset({b"host", b"content-length", b"transfer-encoding", b"origin"})
_BARE_NEWLINE = re.compile(rb"(?<!\r)\n|\r(?!\n)")


@dataclass(slots=True)
class Head:
    """``fields`` are (name in lower case, value, the line as sent, CRLF included); ``host`` is the authority the caller meant;
    ``path`` and ``query`` come from the target, ``query`` is None where there is no "?".
    """

    method: bytes
    path: bytes
    query: bytes | None
    old: bool  # HTTP/1.0
    host: bytes
    fields: list[tuple[bytes, bytes, bytes]]
    values: dict[bytes, bytes]
    content_length: int = 0
    chunked: bool = False

    def value(self, name: bytes) -> bytes | None:
        """The value of this header, the last one's where it is repeated, or None."""
        return self.values.get(name)

    def has_token(self, name: bytes, token: bytes) -> bool:
        """Whether the list that all headers of this name make up holds the token, whatever its case."""
        value = self.values.get(name)
        if value is None:
            return False
        if value.lower() == token:
            return True
        lists = [value for known, value, _ in self.fields if known == name]
        return token in [item.strip() for item in b",".join(lists).lower().split(b",")]


def is_host(text: bytes) -> bool:
    """A host as it may stand in a Host header, with or without a port."""
    return _HOST.fullmatch(text) is not None


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
        line, newline, block = bytes(buffer).partition(b"\r\n")
        if newline:
            _request_line(line)
            _check_singles(_fields(block[: block.rfind(b"\n") + 1]))


def parse(head: bytes) -> Head:
    """Read a complete head, its empty line included. Refused says why it is refused."""
    if len(head) > HEAD_LIMIT:
        raise _too_large()
    _check_newlines(head)
    line, _, block = head[:-2].partition(b"\r\n")
    method, target, old = _request_line(line)
    fields = _fields(block)
    values = {name: value for name, value, _ in fields}
    if len(values) < len(fields):
        _check_singles(fields)
    found = Head(method, b"", None, old, b"", fields, values)
    _read_singles(found)
    _read_target(found, target)
    return found


def for_pod(head: Head, target: bytes, *, drop: frozenset[bytes]) -> tuple[bytes, bytes]:
    """The head as a pod gets it, in two pieces between which its Host belongs: origin-form target, without ``drop`` and
    any Farm- header.
    """
    kept = [line for name, _, line in head.fields if name not in drop and not name.startswith(b"farm-")]
    return b"%b %b HTTP/1.1\r\nHost: " % (head.method, target), b"\r\n%b\r\n" % b"".join(kept)


def _request_line(line: bytes) -> tuple[bytes, bytes, bool]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise _bad("the request line is not METHOD TARGET HTTP/1.1")
    method, target, major, minor = match.groups()
    if major != b"1":
        raise Refused(Refusal.HTTP_VERSION, "only HTTP/1.1 is spoken here")
    return method, target, minor == b"0"


def _fields(block: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """The header lines of ``block``, each ended by CRLF."""
    found = _FIELD.findall(block)
    if len(found) != block.count(b"\n"):
        folded = b"\n " in block or b"\n\t" in block or block[:1] in {b" ", b"\t"}
        raise _bad("a folded header line" if folded else "a header line is not NAME: VALUE")
    if len(found) > FIELDS_LIMIT:
        raise Refused(Refusal.HEAD_TOO_LARGE, f"more than {FIELDS_LIMIT} header lines")
    return [(name.lower(), value.strip(b" \t"), line) for line, name, value in found]


def _check_singles(fields: list[tuple[bytes, bytes, bytes]]) -> None:
    names = [name for name, _, _ in fields]
    for name in _SINGLE:
        if names.count(name) > 1:
            raise _bad(f"{name.decode()} stands there twice")


def _read_singles(head: Head) -> None:
    values = head.values
    length = values.get(b"content-length")
    encoding = values.get(b"transfer-encoding")
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
    host = values.get(b"host")
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
    pairs = text.count(b"\r\n")
    if pairs == text.count(b"\n") == text.count(b"\r") and b"\0" not in text:
        return
    # A trailing CR may be half of a CRLF that is still on its way.
    if _BARE_NEWLINE.search(text, 0, len(text) - 1 if text.endswith(b"\r") else len(text)) or b"\0" in text:
        raise _bad("a bare newline or NUL in the head")


def _bad(detail: str) -> Refused:
    return Refused(Refusal.BAD_REQUEST, detail)


def _too_large() -> Refused:
    return Refused(Refusal.HEAD_TOO_LARGE, f"the head is longer than {HEAD_LIMIT} bytes")
