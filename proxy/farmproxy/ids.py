"""Ids and keys of leases: a ULID sorts by time and may be shown; a KEY is a secret that opens its lease."""

import os
import re
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, as ULIDs use
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
ID_LENGTH = 26
KEY_LENGTH = 32
_ID = re.compile(rf"[{_ALPHABET}]{{{ID_LENGTH}}}")


def new_id_and_key() -> tuple[str, str]:
    """A ULID of now (48 bits of milliseconds, 80 random ones) and a key of 128 random bits in hex."""
    random = os.urandom(26)
    value = int(time.time() * 1000) << 80 | int.from_bytes(random[:10], "big")
    pairs = _PAIRS
    text = "".join([pairs[value >> shift & 1023] for shift in range(120, -1, -10)])
    return text, random[10:].hex()


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None
