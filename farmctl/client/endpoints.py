"""Addresses at the door: how a caller's lease options become a URL's query. The token goes into a header, never a URL.

The door strips these keys before a pod sees the request.
"""

from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit, urlunsplit

from farmwire import paths
from farmwire.launch_options import NAMES, LaunchOptions

from farmctl.errors import UsageError

NO_OPTIONS = LaunchOptions()


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """What a caller asks the door for; None and "" leave the door's default. Seconds; ``hold_s`` 0: do not hold.
    ``launch``: what the lease's Chrome is started with.
    """

    token: str = ""
    pool: str = ""
    hold_s: float | None = None
    max_s: float | None = None
    label: str = ""
    launch: LaunchOptions = NO_OPTIONS

    def query(self) -> dict[str, str]:
        told = {
            "pool": self.pool,
            "hold": _plain(self.hold_s),
            "max": _plain(self.max_s),
            "label": self.label,
        } | {name: _words(getattr(self.launch, name)) for name in NAMES}
        return {key: value for key, value in told.items() if value}

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def http_url(door: str, path: str, lease_options: LeaseOptions | None = None) -> str:
    """Return ``door`` (http, https, ws or wss, with or without a path) joined with path and query."""
    return _join(door, path, lease_options, {"ws": "http", "wss": "https"})


def browser_url(door: str, lease_options: LeaseOptions | None = None) -> str:
    """Return the WebSocket URL that takes a lease of its own each time it is connected to."""
    return _join(door, paths.FARM_BROWSER, lease_options, {"http": "ws", "https": "wss"})


def _join(door: str, path: str, lease_options: LeaseOptions | None, schemes: dict[str, str]) -> str:
    parts = urlsplit(door if "://" in door else f"http://{door}")
    if parts.scheme not in {"http", "https", "ws", "wss"} or not parts.netloc:
        raise UsageError(f"{door!r} is no address of a door", hint="give one such as http://127.0.0.1:9222")
    scheme = schemes.get(parts.scheme, parts.scheme)
    query = urlencode(lease_options.query()) if lease_options else ""
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + path, query, ""))


def _words(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value)


def _plain(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:g}"
