"""The cookies of a render job: read as Playwright and CDP export them, given to Chrome, and looked for there.

The rule: a cookie that Chrome would drop or store as another one is a 400 that names it, never a page without it.
Chrome itself judges (public suffixes too): what it stored is read back.
"""

import asyncio
import ipaddress
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from farmagent.chrome import cdp
from farmagent.render.answers import Reason, RenderError

_DOMAIN = re.compile(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[?[0-9a-f:.]+\]?")
Send = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
_PROBE = "farm-public-suffix"  # a cookie of this name asks Chrome whether its domain is one; it is taken away again


class PartitionKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """CDP's and, by its first field's other name, Puppeteer's."""

    topLevelSite: str = ""  # noqa: N815  (the protocol's names, here and below)
    sourceOrigin: str = ""  # noqa: N815
    hasCrossSiteAncestor: bool = False  # noqa: N815


class Cookie(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cookie. Without url and domain it belongs to the page's URL; a domain without a dot is that host alone."""

    name: Annotated[str, Meta(min_length=1, max_length=4096)]
    value: Annotated[str, Meta(max_length=8192)]
    url: str = ""
    domain: str = ""
    path: str = ""
    expires: float = -1.0  # seconds since 1970; -1 is a session cookie
    httpOnly: bool = False  # noqa: N815
    secure: bool = False
    sameSite: Literal["Strict", "Lax", "None", ""] = ""  # noqa: N815
    partitionKey: str | PartitionKey | None = None  # noqa: N815
    crHasCrossSiteAncestor: bool | None = msgspec.field(  # noqa: N815
        name="_crHasCrossSiteAncestor", default=None
    )
    # What exports carry besides and Chrome sets by itself: taken, and not passed on.
    size: float | None = None
    session: bool | None = None
    priority: Any = None
    sameParty: bool | None = None  # noqa: N815
    sourceScheme: Any = None  # noqa: N815
    sourcePort: Any = None  # noqa: N815
    partitionKeyOpaque: bool | None = None  # noqa: N815

    @property
    def gone(self) -> bool:
        """Whether no page can get it: run out since it was exported, or of a partition that ended with its page."""
        return 0 <= self.expires < time.time() or bool(self.partitionKeyOpaque)

    def as_params(self, page_url: str) -> dict[str, Any]:
        """CDP's Network.CookieParam."""
        params: dict[str, Any] = {"name": self.name, "value": self.value}
        for name in ("url", "path", "httpOnly", "secure", "sameSite"):
            if value := getattr(self, name):
                params[name] = value
        if self.domain:
            params["domain"] = _ascii(self.domain)
        if self.expires >= 0:
            params["expires"] = self.expires
        if not (self.url or self.domain):
            params["url"] = page_url
        if key := self._partition():
            params["partitionKey"] = key
        return params

    def _partition(self) -> dict[str, Any] | None:
        key = self.partitionKey
        if isinstance(key, PartitionKey):
            site = key.topLevelSite or key.sourceOrigin
            return {"topLevelSite": site, "hasCrossSiteAncestor": key.hasCrossSiteAncestor}
        return (
            {"topLevelSite": key, "hasCrossSiteAncestor": bool(self.crHasCrossSiteAncestor)} if key else None
        )


def _ascii(domain: str) -> str:
    """As Chrome stores it (IDNA); UnicodeError where that cannot be."""
    dot = "." if domain.startswith(".") else ""
    return dot + domain.removeprefix(".").lower().encode("idna").decode()


def _is_domain(text: str) -> bool:
    try:
        return bool(_DOMAIN.fullmatch(_ascii(text)))
    except UnicodeError:
        return False


def check(cookies: Sequence[Cookie]) -> None:
    """RenderError 400 for what no server reads as it was meant: bytes outside ASCII have no agreed meaning."""
    for index, cookie in enumerate(cookies):
        if cookie.domain and not _is_domain(cookie.domain):
            raise RenderError(
                Reason.BAD_REQUEST,
                f"{cookie.domain} is no domain, of the cookie {cookie.name} - at `$.cookies[{index}].domain`",
            )
        for name in ("name", "value", "path"):
            if not str(getattr(cookie, name)).isascii():
                raise RenderError(
                    Reason.BAD_REQUEST,
                    f"the {name} of the cookie {cookie.name} holds characters outside ASCII; encode them "
                    f"(percent-encoding is usual) - at `$.cookies[{index}].{name}`",
                )


async def give(send: Send, cookies: Sequence[Cookie], page_url: str) -> None:
    """Set them in the page's context. RenderError 400 names the first that Chrome does not take as it is."""
    wanted = {index: cookie.as_params(page_url) for index, cookie in enumerate(cookies) if not cookie.gone}
    probes = _probes(wanted.values(), urlsplit(page_url).hostname or "")
    if not wanted:
        return
    try:
        _, found = await asyncio.gather(
            send("Network.setCookies", {"cookies": [*wanted.values(), *probes]}),
            send("Network.getAllCookies", {}),
        )
    except cdp.CdpError as error:
        await _blame(send, wanted)
        raise RenderError(Reason.BAD_REQUEST, f"Chrome does not take the cookies: {error.message}") from error
    stored = {(one["name"], one["domain"]): one for one in found["cookies"] if one["name"] == _PROBE}
    suffixes = [one["domain"] for one in probes if (_PROBE, one["domain"]) not in stored]
    await asyncio.gather(
        *(send("Network.deleteCookies", {"name": _PROBE, "domain": domain}) for _, domain in stored)
    )
    for index, params in wanted.items():
        domain = params.get("domain", "")
        if f".{domain}" in suffixes:
            raise _refused(index, params, f"its domain {domain} is a public suffix")
        if not any(_same(params, one) for one in found["cookies"]) and not _replaced(index, wanted):
            raise _refused(index, params, _why(params))


def _probes(wanted: Any, host: str) -> list[dict[str, Any]]:
    """For each domain that is neither the page's own host nor an address: Chrome knows the public suffixes."""
    domains = {params.get("domain", "") for params in wanted} - {"", host}
    return [
        {"name": _PROBE, "value": "1", "domain": f".{domain}"}
        for domain in sorted(domains)
        if not domain.startswith(".") and not _is_address(domain)
    ]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _same(params: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    if params.get("domain", stored["domain"]) != stored["domain"]:
        return False
    path = params.get("path")
    return (stored["name"], stored["value"]) == (params["name"], params["value"]) and path in (
        None,
        stored["path"],
    )


def _replaced(index: int, wanted: Mapping[int, Mapping[str, Any]]) -> bool:
    """Whether a later one of the list takes its place, as a server's later Set-Cookie does."""
    key = [wanted[index].get(name) for name in ("name", "url", "domain", "path", "partitionKey")]
    return any(
        key == [params.get(name) for name in ("name", "url", "domain", "path", "partitionKey")]
        for later, params in wanted.items()
        if later > index
    )


def _why(params: Mapping[str, Any]) -> str:
    if params.get("sameSite") == "None" and not params.get("secure"):
        return "sameSite None needs secure"
    if domain := params.get("domain"):
        return f"its domain {domain} is a public suffix"
    return "it stores another one or none"


async def _blame(send: Send, wanted: Mapping[int, Mapping[str, Any]]) -> None:
    """Chrome refuses a list as a whole: give them one by one, so that the answer can name the one."""
    for index, params in wanted.items():
        try:
            await send("Network.setCookies", {"cookies": [params]})
        except cdp.CdpError as error:
            raise _refused(index, params, error.message) from error


def _refused(index: int, params: Mapping[str, Any], why: str) -> RenderError:
    detail = f"Chrome does not take the cookie {params['name']}: {why} - at `$.cookies[{index}]`"
    return RenderError(Reason.BAD_REQUEST, detail)
