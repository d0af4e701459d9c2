"""What a caller asks of its lease: pool, hold, max, label; from a JSON body, the query or headers, in this order of
weight. And what Chrome is to be started with for it (``farmwire.launch_options``), from body or query. Everything is judged before any hold, and a key that means nothing here is refused: a typing slip, or an option of
another farm, would else go without its effect and nobody would know.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from farmwire import launch_options
from farmwire.reasons import Refusal

from farmproxy.door.refusals import Refused
from farmproxy.door.request_heads import Head

LABEL_LIMIT = 64  # printable characters; it is shown in status and logs
KEY_SHOWN = 32  # characters of an unknown key that an answer repeats
_IN_HEADERS = ("token", "pool", "profile", "hold", "max", "label")
LAUNCH_KEYS = frozenset(launch_options.NAMES)
OWN_KEYS = LAUNCH_KEYS.union(_IN_HEADERS)
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_HEADERS = {prefix + key.encode(): key for key in _IN_HEADERS for prefix in (b"", b"farm-")}
OWN_HEADERS = frozenset(_HEADERS)


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Seconds; ``hold_s`` 0: do not hold. ``launch``: Farm-Launch, "" where nothing of it is asked."""

    pool: str
    hold_s: float
    max_s: float
    label: str = ""
    launch: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits that options are judged by."""

    pools: tuple[str, ...]
    hold_default_s: float
    hold_ceiling_s: float
    lease_default_s: float
    lease_ceiling_s: float


def read_query(query: bytes | None) -> dict[str, str]:
    """The farm's own keys of the query; Refused (400) for any other, and for one that stands there twice."""
    found: dict[str, str] = {}
    for raw_key, raw_value, _ in _pairs(query):
        key = _text(raw_key)
        if key not in OWN_KEYS:
            raise unknown_key(key, OWN_KEYS)
        value = _text(raw_value)
        if key in found:
            if key != "args":
                raise Refused(Refusal.BAD_REQUEST, f"{key} stands in the query twice")
            value = f"{found[key]} {value}"
        found[key] = value
    return found


def without_token(query: bytes | None) -> bytes:
    """The query of a request that is the lease's own pod's to read (``/json/new?URL``), as it was sent but for a token."""
    return b"&".join(part for key, _, part in _pairs(query) if key != b"token")


def unknown_key(key: str, known: Iterable[str]) -> Refused:
    """400 that names the key, the one that was meant if any is near, and those that exist."""
    names = sorted(known)
    plain = key.strip("-").replace("-", "_").lower()
    near = difflib.get_close_matches(plain, names, n=1, cutoff=0.7)
    near = near or [name for name in names if len(plain) > 3 and name.startswith(plain)]
    meant = f"did you mean {near[0]}? " if near else ""
    return Refused(
        Refusal.BAD_REQUEST, f"unknown key {key[:KEY_SHOWN]!r}; {meant}there are: {', '.join(names)}"
    )


def _pairs(query: bytes | None) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Key and value as sent, and the whole part; empty parts are nothing."""
    for part in (query or b"").split(b"&"):
        if part:
            key, _, value = part.partition(b"=")
            yield key, value, part


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


def judge(given: Mapping[str, str], rules: Rules) -> LeaseOptions:
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
    return LeaseOptions(pool, hold_s, max_s, label, _launch(given))


def _launch(given: Mapping[str, str]) -> str:
    if LAUNCH_KEYS.isdisjoint(given):
        return ""
    try:
        return launch_options.parse(given).as_header()
    except ValueError as error:
        raise Refused(Refusal.BAD_REQUEST, str(error)) from error


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
