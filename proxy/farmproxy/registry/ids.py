"""Ids and keys of leases: a ULID sorts by time and may be shown; a KEY is a secret that opens its lease."""

import hashlib
import os
import re
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32, as ULIDs use
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_OF_BYTE = (_ALPHABET * 8).encode()  # a random byte to a random letter: five bits of it are used
ID_LENGTH = 26
_SECRET = os.urandom(32)  # of this process, as its leases are
_ID = re.compile(rf"[{_ALPHABET}]{{{ID_LENGTH}}}")


def new_id() -> str:
    """A ULID of now: 48 bits of milliseconds, 80 random ones."""
    ms = int(time.time() * 1000)
    pairs = _PAIRS
    when = f"{pairs[ms >> 40]}{pairs[ms >> 30 & 1023]}{pairs[ms >> 20 & 1023]}{pairs[ms >> 10 & 1023]}{pairs[ms & 1023]}"
    return when + os.urandom(16).translate(_OF_BYTE).decode()


def key_of(id_: str) -> str:
    """The lease's KEY, 128 bits in hex: a keyed hash, so that none is remembered, and the key of a lease that has ended
    opens what is known of it.
    """
    return hashlib.blake2b(id_.encode(), key=_SECRET, digest_size=16).hexdigest()


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None
