"""What a caller may have its lease's Chrome started with: one reading of it for door and agent, so that whatever the door
takes the agent takes.

The rule for ``args``: a flag is allowed by name if it changes what pages see or do and nothing else, and CDP gives a caller
as much already. None that names a file, a program or a port, none that moves the border between a page and the pod.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

HEADER_LIMIT = 4096  # bytes of the handshake's Farm-Launch: the longest value of every option fits
USER_AGENT_LIMIT = 512
LEAST_WINDOW, LARGEST_WINDOW = (
    (500, 200),
    (8192, 8192),
)  # Chrome makes none smaller; beyond it a picture costs 256 MiB

_HOST = r"(?:[0-9A-Za-z](?:[0-9A-Za-z.-]{0,251}[0-9A-Za-z])?|\[[0-9A-Fa-f:.]{2,45}\])"
_PROXY = re.compile(rf"(?:(?:https?|socks[45])://)?{_HOST}:[0-9]{{1,5}}")
_LANG = re.compile(
    r"[A-Za-z]{2,3}(?:-[0-9A-Za-z]{2,8}){0,3}(?:,[A-Za-z]{2,3}(?:-[0-9A-Za-z]{2,8}){0,3}){0,7}"
)
_TIMEZONE = re.compile(r"[A-Z][0-9A-Za-z_+-]{1,31}(?:/[0-9A-Za-z_+-]{1,31}){0,2}")  # no path, nothing hidden
_WINDOW = re.compile(r"([0-9]{1,4})x([0-9]{1,4})")
_FLAG = re.compile(r"--([a-z0-9-]{1,64})(?:=([\x21-\x7e]{0,256}))?")

# Name to what its value may be; None: it takes none.
ARGS: dict[str, str | None] = {
    "autoplay-policy": "no-user-gesture-required|user-gesture-required|document-user-activation-required",
    "blink-settings": "imagesEnabled=(?:true|false)",
    "disable-3d-apis": None,
    "disable-blink-features": "AutomationControlled",
    "disable-notifications": None,
    "disable-popup-blocking": None,
    "font-render-hinting": "none|slight|medium|full|max",
    "force-color-profile": "[a-z0-9-]{1,32}",
    "force-dark-mode": None,
    "force-device-scale-factor": r"[1-4](?:\.[0-9]{1,2})?|0\.[1-9][0-9]?",
    "force-prefers-reduced-motion": None,
    "hide-scrollbars": None,
    "ignore-certificate-errors": None,
    "proxy-bypass-list": r"[0-9A-Za-z.*:;,<>\[\]/-]{1,256}",
    "use-fake-device-for-media-stream": None,
    "use-fake-ui-for-media-stream": None,
}
# What clients of other farms send most, and why it is not taken.
_REFUSED = {
    "user-agent": "say user_agent",
    "lang": "say lang",
    "accept-lang": "say lang",
    "window-size": "say window",
    "proxy-server": "say proxy_server",
    "no-sandbox": "the pod decides on the sandbox",
    "disable-setuid-sandbox": "the pod decides on the sandbox",
    "disable-dev-shm-usage": "the agent decides by the pod's memory",
    "disable-web-security": "every page could read the pod's own ports",
    "headless": "Chrome is headless",
    "remote-debugging-port": "the agent has it",
    "user-data-dir": "each Chrome has one of its own",
    "load-extension": "no path of yours exists in a pod",
}


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Empty where nothing is asked. ``window`` is WxH, ``lang`` one or more language tags, the first counts most."""

    proxy_server: str = ""
    user_agent: str = ""
    lang: str = ""
    timezone: str = ""
    window: str = ""
    args: tuple[str, ...] = ()

    def as_header(self) -> str:
        """Compact JSON in ASCII, for Farm-Launch; "" where nothing is asked."""
        told = {name: value for name in NAMES if (value := getattr(self, name))}
        return json.dumps(told, separators=(",", ":")) if told else ""


NAMES = tuple(each.name for each in fields(LaunchOptions))


def parse(given: Mapping[str, str]) -> LaunchOptions:
    """Options by their names, ``args`` separated by spaces; other keys are not looked at.

    Raises ValueError, which names the option and says what is allowed.
    """
    told = {name: given[name] for name in NAMES if given.get(name)}
    args = tuple(told.pop("args", "").split())
    for name, value in told.items():
        _CHECKS[name](value)
    seen = [_check_flag(flag) for flag in args]
    for name in seen:
        if seen.count(name) > 1:
            raise ValueError(f"args; --{name} stands there twice")
    return LaunchOptions(**told, args=args)


def from_header(text: str) -> LaunchOptions:
    """Raises ValueError."""
    try:
        told = json.loads(text) if len(text) <= HEADER_LIMIT else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or not told.keys() <= set(NAMES):
        raise ValueError("no launch options")
    flags = told.get("args", [])
    texts = [value for name, value in told.items() if name != "args"]
    if not isinstance(flags, list) or not all(isinstance(value, str) for value in [*texts, *flags]):
        raise ValueError("no launch options")
    return parse({**told, "args": " ".join(flags)})


def window_of(options: LaunchOptions) -> tuple[int, int]:
    """Width and height of a ``window`` that was asked for."""
    width, _, height = options.window.partition("x")
    return int(width), int(height)


def _proxy_server(value: str) -> None:
    if "@" in value:
        raise ValueError(
            "proxy_server; Chrome takes no credentials there: leave them out and answer the proxy's 407, "
            "by Playwright's new_context(proxy=...) or CDP's Fetch.continueWithAuth"
        )
    if not _PROXY.fullmatch(value) or int(value.rpartition(":")[2]) > 65535:
        raise ValueError(
            "proxy_server; allowed: HOST:PORT, or with http://, https://, socks4:// or socks5:// before it"
        )


def _user_agent(value: str) -> None:
    if len(value) > USER_AGENT_LIMIT or not value.isascii() or not value.isprintable():
        raise ValueError(f"user_agent; allowed: at most {USER_AGENT_LIMIT} printable characters of ASCII")


def _lang(value: str) -> None:
    if not _LANG.fullmatch(value):
        raise ValueError("lang; allowed: a language tag such as de-DE, or up to eight separated by commas")


def _timezone(value: str) -> None:
    if not _TIMEZONE.fullmatch(value) or not _is_zone(value):
        raise ValueError("timezone; allowed: a name of the IANA time zone database, such as Europe/Berlin")


def _is_zone(name: str) -> bool:
    """Chrome takes a zone that it does not know for UTC, and says nothing."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return not _has_zones()
    return True


def _has_zones() -> bool:
    """Whether this machine has the database at all: without it nothing is judged here."""
    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        return False
    return True


def _window(value: str) -> None:
    found = _WINDOW.fullmatch(value)
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(
        least <= each <= most for least, each, most in zip(LEAST_WINDOW, size, LARGEST_WINDOW, strict=True)
    ):
        least, most = ("x".join(map(str, each)) for each in (LEAST_WINDOW, LARGEST_WINDOW))
        raise ValueError(f"window; allowed: WIDTHxHEIGHT from {least} to {most}, such as 1280x800")


def _check_flag(flag: str) -> str:
    """The flag's name."""
    found = _FLAG.fullmatch(flag)
    if found is None:
        raise ValueError("args; allowed: flags as --name or --name=value, separated by spaces")
    name, value = found[1], found[2]
    if name not in ARGS:
        why = _REFUSED.get(name, "not one of those that are: " + ", ".join(f"--{each}" for each in ARGS))
        raise ValueError(f"args; --{name} is not taken: {why}")
    pattern = ARGS[name]
    if (value is None) != (pattern is None) or (pattern and not re.fullmatch(pattern, value)):
        allowed = f"--{name}" if pattern is None else f"--{name}= and what matches {pattern}"
        raise ValueError(f"args; allowed: {allowed}")
    return name


_CHECKS: dict[str, Callable[[str], None]] = {
    "proxy_server": _proxy_server,
    "user_agent": _user_agent,
    "lang": _lang,
    "timezone": _timezone,
    "window": _window,
}
