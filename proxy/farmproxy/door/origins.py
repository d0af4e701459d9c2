"""Which web pages may talk to the door, and under which name and path it was reached. Any page could otherwise drive the farm
through its visitor's browser: by a foreign Origin, or by a name that its owner points at the door (DNS rebinding).
"""

import ipaddress
from dataclasses import dataclass

from farmwire.reasons import Refusal

from farmproxy.config.parsers import Network, parse_prefix
from farmproxy.door.refusals import Refused
from farmproxy.door.request_heads import Head, is_host

_DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443"}


@dataclass(frozen=True, slots=True)
class OriginRules:
    origins: frozenset[str]
    hosts: frozenset[str]
    trusted_proxies: tuple[Network, ...] = ()
    prefix: str = ""


def seen_as(head: Head, peer: str, local: str, rules: OriginRules) -> tuple[str, bool]:
    """The authority under which the caller reached the door, and whether over TLS. ``local`` stands in for a missing
    Host (HTTP/1.0). X-Forwarded-* count from trusted proxies only.
    """
    host, secure = head.host.decode("ascii") or local, False
    if rules.trusted_proxies and _trusted(peer, rules.trusted_proxies):
        forwarded = head.value(b"x-forwarded-host")
        first = forwarded.split(b",")[0].strip() if forwarded else b""
        if is_host(first):
            host = first.decode("ascii")
        proto = head.value(b"x-forwarded-proto")
        secure = proto is not None and proto.split(b",")[0].strip().lower() in {b"https", b"wss"}
    return host, secure


def prefix_of(head: Head, peer: str, rules: OriginRules) -> str:
    """The path under which an ingress serves the door: what a trusted proxy says, else the setting.

    Each proxy on the way adds what it has stripped, so the parts of a list belong together.
    """
    told = head.value(b"x-forwarded-prefix") if rules.trusted_proxies else None
    if told is None or not _trusted(peer, rules.trusted_proxies):
        return rules.prefix
    try:
        return parse_prefix("".join(part.strip().rstrip("/") for part in told.decode("latin-1").split(",")))
    except ValueError as error:
        raise Refused(Refusal.BAD_REQUEST, f"X-Forwarded-Prefix; {error}") from error


def strip(path: bytes, prefix: str) -> bytes:
    """The door's own path, also behind an ingress that hands on the whole one."""
    start = prefix.encode()
    if start and (path == start or path.startswith(start + b"/")):
        return path[len(start) :] or b"/"
    return path


def check(head: Head, host: str, rules: OriginRules, *, token_required: bool) -> None:
    """Raise Refused (403 origin) for a foreign Origin, or for a Host that proves nothing when no token is asked."""
    origin = head.value(b"origin")
    if origin is not None and not _own(origin.decode("latin-1").lower(), host.lower(), rules):
        raise Refused(Refusal.ORIGIN, "this Origin is neither the door's own host nor allowed")
    if not token_required and not _plain(host, rules):
        raise Refused(
            Refusal.ORIGIN, "without tokens the Host must be an address, localhost or one of FARMPROXY_HOSTS"
        )


def _own(origin: str, host: str, rules: OriginRules) -> bool:
    if origin in rules.origins:
        return True
    scheme, mark, authority = origin.partition("://")
    if not mark or scheme not in _DEFAULT_PORTS:
        return False
    if authority == host:
        return True
    # A browser leaves the default port out, other clients write it: the same place.
    name, port = split_port(authority)
    own_name, own_port = split_port(host)
    default = _DEFAULT_PORTS[scheme]
    return name == own_name and (port or default) == (own_port or default)


def _plain(host: str, rules: OriginRules) -> bool:
    name = split_port(host)[0].lower().rstrip(".")
    if name in {"localhost", "127.0.0.1"} or name.endswith(".localhost") or name in rules.hosts:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def split_port(authority: str) -> tuple[str, str]:
    """Host (IPv6 in its brackets) and port, "" where there is none."""
    name, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        return authority, ""
    return name, port


def _trusted(peer: str, networks: tuple[Network, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
