"""Heads of an agent's answers, pure. What is not plain HTTP/1.1 raises Garbage; sizes are bounded."""

import re
from dataclasses import dataclass
from functools import lru_cache

HEAD_LIMIT = 8 * 1024
BODY_LIMIT = 16 * 1024  # the agent's JSON is a few hundred bytes, Chrome's version too

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")
_FIELD = re.compile(rb"(?m)^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t\x20-\x7e\x80-\xff]*)\r\n")
_PREFIX = b"HTTP/1.1 "
_SAME_LIMIT = 512  # bytes; longer heads are not kept


class Garbage(Exception):  # an outcome of reading
    """Not an agent's answer; the text says why."""


@dataclass(slots=True, frozen=True)
class AnswerHead:
    """``fields`` by lower-case name (a repeated one is garbage); ``size`` is the head's, its empty line included;
    ``body`` is the body's length, None where the answer does not say.
    """

    status: int
    fields: dict[bytes, bytes]
    size: int
    body: int | None


def read_head(buffer: bytes | bytearray) -> AnswerHead | None:
    """The head at the start of the buffer, None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        start = bytes(buffer[: len(_PREFIX)])
        if not _PREFIX.startswith(start) and not start.startswith(_PREFIX):
            raise Garbage("not HTTP/1.1")
        if len(buffer) > HEAD_LIMIT:
            raise Garbage("the head is too long")
        return None
    if end > HEAD_LIMIT:
        raise Garbage("the head is too long")
    return _parse(bytes(buffer[: end + 4]))


def read_same_head(buffer: bytes | bytearray) -> AnswerHead | None:
    """The same for answers whose heads hardly differ, as /readyz gives them: each is parsed once."""
    end = buffer.find(b"\r\n\r\n")
    return read_head(buffer) if not 0 <= end <= _SAME_LIMIT else _parse_once(bytes(buffer[: end + 4]))


def _parse(head: bytes) -> AnswerHead:
    match = _STATUS.match(head)
    if match is None:
        raise Garbage("not HTTP/1.1")
    found = _FIELD.findall(head, match.end(), len(head) - 2)
    fields = {name.lower(): value.strip(b" \t") for name, value in found}
    if len(fields) + 1 != head.count(b"\n", 0, len(head) - 2):
        raise Garbage("a header line is not NAME: VALUE, or repeated")
    return AnswerHead(int(match[1]), fields, len(head), _body_length(fields))


_parse_once = lru_cache(maxsize=64)(_parse)


def _body_length(fields: dict[bytes, bytes]) -> int | None:
    if b"transfer-encoding" in fields:
        raise Garbage("an agent's short answer is not chunked")
    length = fields.get(b"content-length")
    if length is None:
        return None
    if not length.isdigit() or len(length) > 9 or int(length) > BODY_LIMIT:
        raise Garbage("content-length is wrong or too large")
    return int(length)
