"""What a caller asks of its lease: pool, hold, max, label; from a JSON body, the query or headers, in this order of
weight. Everything is judged before any hold.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from farmwire.reasons import Refusal

from farmproxy.door.heads import Head
from farmproxy.door.refusals import Refused

LABEL_LIMIT = 64  # printable characters; it is shown in status and logs
OWN_KEYS = frozenset({"token", "pool", "profile", "hold", "max", "label"})
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_HEADERS = {prefix + key.encode(): key for key in OWN_KEYS for prefix in (b"", b"farm-")}
OWN_HEADERS = frozenset(_HEADERS)


@dataclass(frozen=True, slots=True)
class Wishes:
    """Seconds; ``hold_s`` 0: do not hold."""

    pool: str
    hold_s: float
    max_s: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits that wishes are judged by."""

    pools: tuple[str, ...]
    hold_default_s: float
    hold_ceiling_s: float
    lease_default_s: float
    lease_ceiling_s: float


def split_query(query: bytes | None) -> tuple[dict[str, str], bytes]:
    """The farm's own keys of the query, and the rest of it as it was sent. A repeated own key is refused."""
    if not query:
        return {}, b""
    own: dict[str, str] = {}
    rest = []
    for part in query.split(b"&"):
        raw_key, _, raw_value = part.partition(b"=")
        key = _text(raw_key)
        if key not in OWN_KEYS:
            rest.append(part)
        elif key in own:
            raise Refused(Refusal.BAD_REQUEST, f"{key} stands in the query twice")
        else:
            own[key] = _text(raw_value)
    return own, b"&".join(rest)


def from_headers(head: Head) -> dict[str, str]:
    """The same keys as headers, with or without ``Farm-`` before them."""
    found: dict[str, str] = {}
    if OWN_HEADERS.isdisjoint(head.values):
        return found
    for name, value, _ in head.fields:
        key = _HEADERS.get(name)
        if key is None:
            continue
        if key in found:
            raise Refused(Refusal.BAD_REQUEST, f"{key} stands in the headers twice")
        found[key] = value.decode("utf-8", "replace")
    return found


def judge(given: Mapping[str, str], rules: Rules) -> Wishes:
    """Defaults filled in, ceilings kept; Refused says which key and what is allowed."""
    if "profile" in given:
        raise Refused(Refusal.BAD_REQUEST, "profile is unsupported")
    pool = given.get("pool", "") or rules.pools[0]
    if pool not in rules.pools:
        raise Refused(
            Refusal.NOT_FOUND, f"no pool {pool[:LABEL_LIMIT]!r}; there are: {', '.join(rules.pools)}"
        )
    hold_s = _seconds(given, "hold", rules.hold_default_s, rules.hold_ceiling_s)
    max_s = _seconds(given, "max", rules.lease_default_s, rules.lease_ceiling_s)
    if max_s <= 0:
        raise Refused(Refusal.BAD_REQUEST, "max is 0; allowed: seconds above 0")
    label = given.get("label", "")
    if len(label) > LABEL_LIMIT or not label.isprintable():
        raise Refused(Refusal.BAD_REQUEST, f"label; allowed: at most {LABEL_LIMIT} printable characters")
    return Wishes(pool, hold_s, max_s, label)


def _seconds(given: Mapping[str, str], key: str, default: float, ceiling: float) -> float:
    text = given.get(key)
    if text is None:
        return default
    if not _SECONDS.fullmatch(text):
        raise Refused(Refusal.BAD_REQUEST, f"{key} is {text[:20]!r}; allowed: seconds from 0 to {ceiling:g}")
    value = float(text)
    if value > ceiling:
        raise Refused(Refusal.BAD_REQUEST, f"{key} is {value:g}; the ceiling is {ceiling:g} seconds")
    return value


def _text(raw: bytes) -> str:
    if b"%" in raw or b"+" in raw:
        raw = unquote_to_bytes(raw.replace(b"+", b" "))
    return raw.decode("utf-8", "replace")
