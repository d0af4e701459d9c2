"""The render request: its fields, their limits and defaults, checked before a page is opened.

The rule: an unknown field, a wrong type or a value over its limit is a 400 whose detail names the field.
"""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from farmagent.render import cookies
from farmagent.render.answers import Reason, RenderError
from farmagent.render.cookies import Cookie
from farmagent.render.targets import SCHEMES, BadTarget, RefusedTarget, TargetPolicy, split_url

Format = Literal["html", "text", "png", "jpeg", "pdf", "json"]
WaitUntil = Literal["commit", "domcontentloaded", "load", "networkidle"]
# What the page may be refused, by Chrome's resource types in lower case. Not `document` (there would be no page)
# and not `websocket` (Chrome's interception does not see it).
Block = Literal[
    "image", "stylesheet", "font", "media", "script", "texttrack", "xhr", "fetch", "prefetch",
    "eventsource", "manifest", "ping", "other",
]  # fmt: skip

PIXELS_MAX = 50_000_000  # 1280 x 39,062; four bytes each in the renderer and again in the browser
SIDE_MAX_PX = 40_000  # of a full page, in device pixels
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 5.6.2
# Printable ASCII and tabs: what else Chrome sends depends on which part of the page asks, in two different encodings.
_VALUE = re.compile(r"[\x20-\x7e\t]*")
# Framing and routing belong to Chrome: it fails the navigation with net::ERR_INVALID_ARGUMENT, or sends its own in
# silence.
_CHROMES_OWN = re.compile(
    r"accept|connection|content-length|cookie2|host|keep-alive|proxy-.*|sec-fetch-.*|set-cookie|te|trailer"
    r"|transfer-encoding|upgrade",
    re.IGNORECASE,
)


class Viewport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    width: Annotated[int, Meta(ge=1, le=8192)] = 1280
    height: Annotated[int, Meta(ge=1, le=8192)] = 720
    scale: Annotated[float, Meta(ge=0.1, le=4)] = 1.0


class RenderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One job. ``wait_for`` is a CSS selector that must be in the document; ``script`` runs after the waiting."""

    url: Annotated[str, Meta(min_length=1, max_length=65536)]
    format: Format = "html"
    wait_until: WaitUntil = "load"
    wait_for: Annotated[str, Meta(max_length=4096)] = ""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    full_page: bool = False
    viewport: Viewport = Viewport()
    headers: dict[str, str] = {}
    cookies: Annotated[tuple[Cookie, ...], Meta(max_length=300)] = ()
    user_agent: Annotated[str, Meta(max_length=1024)] = ""
    block: tuple[Block, ...] = ()
    script: str = ""


_DECODER = msgspec.json.Decoder(RenderRequest)


def parse(body: bytes, policy: TargetPolicy) -> RenderRequest:
    """Read and check a request. RenderError: 400 bad-request, or 403 refused-target."""
    try:
        request = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RenderError(Reason.BAD_REQUEST, str(error)) from error
    try:
        policy.check_url(request.url)
    except BadTarget as error:
        raise RenderError(Reason.BAD_REQUEST, f"{error} - at `$.url`") from error
    except RefusedTarget as error:
        raise RenderError(Reason.REFUSED_TARGET, str(error)) from error
    _check_headers(request)
    cookies.check(request.cookies)
    check_pixels(request.viewport.width, request.viewport.height, request.viewport.scale, Reason.BAD_REQUEST)
    return request


def check_pixels(width: float, height: float, scale: float, reason: Reason) -> None:
    """Bound a picture by its device pixels: each side, and the area."""
    if max(width, height) * scale > SIDE_MAX_PX or width * height * scale * scale > PIXELS_MAX:
        detail = (
            f"{width:g} x {height:g} at scale {scale:g} is over {SIDE_MAX_PX} px a side or {PIXELS_MAX} px"
        )
        raise RenderError(reason, detail)


def _check_headers(request: RenderRequest) -> None:
    seen: set[str] = set()
    for name, value in request.headers.items():
        wrong = ""
        if not _TOKEN.fullmatch(name):
            wrong = f"{name!r} is no header name"
        elif _CHROMES_OWN.fullmatch(name):
            wrong = f"{name} is Chrome's own to set"
        elif not _VALUE.fullmatch(value):
            wrong = f"the value of {name} holds control characters or characters outside ASCII"
        elif name.lower() in seen:
            wrong = f"{name} stands there twice"
        elif name.lower() == "referer" and not _is_url(value):
            wrong = "the value of Referer is no http or https URL"
        if wrong:
            raise RenderError(Reason.BAD_REQUEST, f"{wrong} - at `$.headers`")
        seen.add(name.lower())
    if not _VALUE.fullmatch(request.user_agent):
        raise RenderError(
            Reason.BAD_REQUEST, "control characters or characters outside ASCII - at `$.user_agent`"
        )


def _is_url(text: str) -> bool:
    try:
        return split_url(text).scheme in SCHEMES
    except BadTarget:
        return False
