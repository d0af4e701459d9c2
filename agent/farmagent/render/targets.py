"""Which targets a render job may reach: only http and https, and only public addresses unless a setting says more.

The rule: an address is judged where it is connected to, never by the spelling of its name. So the first look at
a URL only refuses early what is plain from its text; ``permitted`` judges the addresses that will be dialled.
"""

import ipaddress
import re
import unicodedata
from collections.abc import Iterable
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec
from farmwire.addresses import Address, Network, embedded, is_public

SCHEMES = frozenset({"http", "https"})
LOOPBACK: tuple[Address, ...] = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f]")


class BadTarget(ValueError):
    """The text is no URL of a page."""


class RefusedTarget(Exception):
    """A URL that the policy does not allow; the message says why."""


class TargetPolicy(msgspec.Struct, frozen=True):
    """``networks`` are allowed besides the public addresses; ``everything`` allows all (and costs no check)."""

    networks: tuple[Network, ...] = ()
    everything: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """The setting FARMAGENT_PRIVATE_TARGETS: ``refuse``, ``allow``, or networks separated by commas.

        ValueError names the part that is no network.
        """
        words = [word.strip() for word in text.split(",") if word.strip()]
        if words in ([], ["refuse"]):
            return cls()
        if words == ["allow"]:
            return cls(everything=True)
        return cls(networks=tuple(ipaddress.ip_network(word, strict=False) for word in words))

    def allows(self, address: Address) -> bool:
        """Whether a connection to this address may be made."""
        address = embedded(address)
        return (
            self.everything
            or is_public(address)
            or any(address in network for network in self.networks if network.version == address.version)
        )

    def permitted(self, addresses: Iterable[Address]) -> list[Address]:
        """Those of a name's addresses that may be dialled; none means the target is refused."""
        return [address for address in addresses if self.allows(address)]

    def check_url(self, url: str) -> SplitResult:
        """Refuse what is plain from the text: BadTarget (no URL) or RefusedTarget. Names are not resolved here."""
        parts = split_url(url)
        if parts.scheme not in SCHEMES:
            raise RefusedTarget(f"{parts.scheme}: pages are not rendered, only http and https")
        known = literal(parts.hostname or "")
        if known and not self.permitted(known):
            raise RefusedTarget(f"{parts.hostname} is a private address; this farm renders public pages only")
        return parts


def split_url(url: str) -> SplitResult:
    """Parse strictly: no spaces or control characters, a scheme, and for http a host and a sound port."""
    if _FORBIDDEN.search(url):
        raise BadTarget("the URL holds spaces or control characters; percent-encode them")
    if not _SCHEME.match(url):
        raise BadTarget("the URL has no scheme; write http:// or https://")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadTarget(f"not a URL: {error}") from error
    if parts.scheme in SCHEMES and not parts.hostname:
        raise BadTarget("the URL names no host")
    return parts


def literal(host: str) -> list[Address]:
    """The addresses that a host's text itself stands for, read as Chrome reads it; empty for a name.

    Chrome follows the URL standard: percent-decoding, NFKC, and IPv4 with one to four parts, each decimal,
    octal (0) or hexadecimal (0x). BadTarget for a number that is no address.
    """
    text = unicodedata.normalize("NFKC", unquote(host)).lower().replace("\u3002", ".").rstrip(".")
    if text == "localhost" or text.endswith(".localhost"):
        return list(LOOPBACK)
    if ":" in text:
        try:
            return [ipaddress.IPv6Address(text.split("%", 1)[0])]
        except ValueError as error:
            raise BadTarget(f"{host} is no IPv6 address") from error
    last = text.rsplit(".", 1)[-1]
    if not (last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last)):
        return []
    return [_parse_ipv4(text)]


def _parse_ipv4(text: str) -> Address:
    """The URL standard's IPv4 parser: the last part fills all bytes that are left."""
    parts = text.split(".")
    try:
        numbers = [_parse_number(part) for part in parts]
    except ValueError as error:
        raise BadTarget(f"{text} is no IPv4 address") from error
    if len(numbers) > 4 or any(number > 255 for number in numbers[:-1]):
        raise BadTarget(f"{text} is no IPv4 address")
    value = numbers[-1]
    if value >= 256 ** (5 - len(numbers)):
        raise BadTarget(f"{text} is no IPv4 address")
    for index, number in enumerate(numbers[:-1]):
        value += number << (8 * (3 - index))
    return ipaddress.IPv4Address(value)


def _parse_number(part: str) -> int:
    if not part.isascii() or not part:
        raise ValueError(part)
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    if not part.isdigit():
        raise ValueError(part)
    return int(part, 8) if len(part) > 1 and part.startswith("0") else int(part)
