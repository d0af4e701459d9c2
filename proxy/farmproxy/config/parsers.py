"""How the text of one environment variable becomes a value. Every parser raises ValueError saying what is allowed."""

import ipaddress
import math
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from farmwire import bounds

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, as Kubernetes names are
_HOST = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# Not one that begins as the door's own paths do: whether it still stands before them could then not be told.
_PREFIX = re.compile(r"(?!/(?:json|leases|devtools|render)(?:/|$))(?:/[0-9A-Za-z_~-][0-9A-Za-z._~-]*)+")
_PREFIX_LIMIT = 200
_ORIGIN = re.compile(rf"[!-)+-~]{{1,{bounds.ORIGIN_CHARS}}}")  # ASCII, as browsers send it; no wildcard
_LONGEST_S = 30 * 24 * 3600.0  # a month: beyond it a number is a slip of the unit


class HostPort(NamedTuple):
    """A host and a port; ``host`` is without brackets, ``port`` 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Pools(dict[str, str]):
    """Pool name to Service name, in the order given; shown as the variable is written."""

    def __str__(self) -> str:
        return ",".join(f"{pool}={service}" for pool, service in self.items())


def parse_seconds(*, least: float) -> Callable[[str], float]:
    """Seconds, decimals allowed, from ``least`` to a month."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= _LONGEST_S:  # also refuses nan
            msg = f"allowed: seconds from {least:g} to {_LONGEST_S:g}, such as 30 or 0.5"
            raise ValueError(msg)
        return value

    return parse


def parse_count(*, least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            msg = f"allowed: a whole number from {least} to 999999999"
            raise ValueError(msg)
        return int(text)

    return parse


def parse_name(text: str) -> str:
    if not _LABEL.fullmatch(text):
        msg = "allowed: a Kubernetes name: at most 63 of a-z, 0-9 and -"
        raise ValueError(msg)
    return text


def parse_text(text: str) -> str:
    return text


def parse_pools(text: str) -> Pools:
    pools = Pools()
    for item in split_list(text):
        pool, equals, service = (part.strip() for part in item.partition("="))
        if not equals or not _LABEL.fullmatch(pool) or not _LABEL.fullmatch(service):
            raise ValueError("allowed: name=Service,... such as default=browsers,big=browsers-big")
        if pool in pools:
            msg = f"the pool {pool} stands there twice"
            raise ValueError(msg)
        if service in pools.values():
            msg = f"the Service {service} stands there twice: two pools would lease the same pods"
            raise ValueError(msg)
        pools[pool] = service
    if not pools:
        raise ValueError("allowed: at least one name=Service, such as default=browsers")
    return pools


def parse_host_port(text: str) -> HostPort:
    """``host:port``, ``[v6]:port`` or ``:port`` (every address)."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if (
        not colon
        or not re.fullmatch(r"[0-9]{1,5}", port)
        or int(port) > 65535
        or (":" in host and not bracketed)
    ):
        raise ValueError("allowed: host:port, such as 0.0.0.0:9222 or [::]:9222")
    return HostPort(host or "0.0.0.0", int(port))


def parse_api_url(text: str) -> str:
    """The API server's base URL, without a trailing slash."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("allowed: http:// or https:// with a host, such as https://10.96.0.1:443")
    return text.rstrip("/")


def parse_origins(text: str) -> frozenset[str]:
    origins = [item.lower().rstrip("/") for item in split_list(text)]
    for origin in origins:
        parts = urlsplit(origin)
        if not parts.scheme or not parts.netloc or parts.path or parts.query or not _ORIGIN.fullmatch(origin):
            msg = (
                f"{origin!r} is no origin; allowed: scheme://host or scheme://host:port, separated by commas"
            )
            raise ValueError(msg)
    return frozenset(origins)


def parse_hosts(text: str) -> frozenset[str]:
    hosts = [item.lower().rstrip(".") for item in split_list(text)]
    for host in hosts:
        if not _HOST.fullmatch(host):
            msg = f"{host!r} is no host name; allowed: names without a port, separated by commas"
            raise ValueError(msg)
    return frozenset(hosts)


def parse_prefix(text: str) -> str:
    """A path before the door's own, without a trailing slash; "" for "/" alone."""
    prefix = text.rstrip("/")
    if prefix and (len(prefix) > _PREFIX_LIMIT or not _PREFIX.fullmatch(prefix)):
        msg = f"allowed: a path such as /farm, at most {_PREFIX_LIMIT} letters, digits and . _ ~ -, not one of the door's"
        raise ValueError(msg)
    return prefix


def parse_networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(item) for item in split_list(text))
    except ValueError as error:
        msg = f"{error}; allowed: networks separated by commas, such as 10.0.0.0/8,192.0.2.7"
        raise ValueError(msg) from error


def split_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def show(value: object) -> str:
    """A default as a person would write it into the variable."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, frozenset | tuple) and not isinstance(value, HostPort):
        return ",".join(sorted(str(item) for item in value))
    return str(value)
