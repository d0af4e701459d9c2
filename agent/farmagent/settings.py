"""The agent's settings: read once from the environment, checked all at once, units in their names."""

import os
import shlex
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, cast

from farmwire.paths import AGENT_PORT

from farmagent.errors import SettingsError

PREFIX = "FARMAGENT_"
# systemd's UIDS-GIDS page calls them unused; below 65536, so that a pod with a user namespace has them too.
CHROME_UIDS = range(60578, 61184)

Read = Callable[[str], Any]


# ruff: noqa: RUF009  (_setting only wraps dataclasses.field)
def _setting(default: Any, read: Read, meaning: str) -> Any:
    return field(default=default, metadata={"read": read, "meaning": meaning})


def _host_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be host:port")
    return host.strip("[]"), int(port)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e7:
        raise ValueError("must be a positive number of seconds")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def _one_of(*words: str) -> Read:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return read


def _pod(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 3 or not all(parts) or not text.isprintable() or " " in text:
        raise ValueError("must be namespace/name/uid")
    return text


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _work_dir(text: str) -> Path:
    return Path(text).absolute()


def _paths(text: str) -> tuple[Path, ...]:
    paths = tuple(Path(part.strip()) for part in text.split(",") if part.strip())
    if not all(path.is_absolute() for path in paths):
        raise ValueError("must be absolute paths, separated by commas")
    return paths


def _uids(text: str) -> range:
    first, _, last = text.partition("-")
    span = range(int(first), int(last or first) + 1)
    if not span or span[0] < 1 or span[-1] >= 2**32 - 1:
        raise ValueError("must be first-last, both above 0")
    if os.geteuid() in span:
        raise ValueError("must not hold the agent's own uid")
    return span


def _targets(text: str) -> str:
    if text not in ("refuse", "allow"):
        for part in text.split(","):
            ip_network(part.strip())
    return text


def _hostname() -> str:
    return socket.gethostname() or "agent"


@dataclass(frozen=True, slots=True)
class Settings:
    """Field = environment name without FARMAGENT_, in lower case."""

    listen: tuple[str, int] = _setting(("0.0.0.0", AGENT_PORT), _host_port, "host:port to serve on")
    pod: str = _setting("", _pod, "namespace/name/uid of this pod (default: default/HOSTNAME/unset)")
    ready: Literal["free", "healthy"] = _setting(
        "free",
        _one_of("free", "healthy"),
        "what /readyz without ?wait means: free = a lease can be had now; healthy = not starting, broken or draining",
    )
    key_file: Path | None = _setting(
        None, _path, "file with the secret that proxies send as Farm-Key; re-read when it changes"
    )
    chrome: Path | None = _setting(None, _path, "Chrome's binary itself, no wrapper script (default: found)")
    chrome_args: tuple[str, ...] = _setting(
        (), lambda text: tuple(shlex.split(text)), "more arguments for Chrome, shell-quoted"
    )
    chrome_uids: range = _setting(
        CHROME_UIDS,
        _uids,
        "first-last: uids that nobody else uses, for an agent that may change uids: one a Chrome",
    )
    sandbox: Literal["auto", "on", "off"] = _setting(
        "auto", _one_of("auto", "on", "off"), "Chrome's own sandbox; auto: wherever the machine permits it"
    )
    recycle: Literal["fresh", "spare"] = _setting(
        "fresh",
        _one_of("fresh", "spare"),
        "between leases: start a fresh Chrome, or swap in a spare kept warm",
    )
    spare_after_s: float = _setting(3.0, _seconds, "how long after a lease began the spare is started")
    private_targets: str = _setting(
        "refuse", _targets, "may /render reach private addresses: refuse, allow, or networks with commas"
    )
    work_dir: Path | None = _setting(
        None,
        _work_dir,
        "parent of Chrome's directories; wiped at start (default: in the temporary directory)",
    )
    sweep: tuple[Path, ...] = _setting(
        (),
        _paths,
        "where agent and Chrome share a uid: folders that this pod alone uses, e.g. /tmp,/dev/shm; after each Chrome "
        "that uid's files there are removed (with uids of their own all writable folders are found)",
    )
    policy_dir: Path | None = _setting(
        None, _path, "write Chrome's managed policy here, e.g. /etc/chromium/policies/managed (empty: do not)"
    )
    grace_s: float = _setting(3600.0, _seconds, "after SIGTERM, how long a running session may go on")
    heartbeat_s: float = _setting(
        1.5,
        _seconds,
        "how often Chrome is asked for its version; 3 unanswered in a row mean frozen, unless it works: then 60 s do",
    )
    start_s: float = _setting(30.0, _seconds, "how long Chrome may take to start")
    lease_max_s: float = _setting(3600.0, _seconds, "longest lease when the proxy names none")
    stall_s: float = _setting(60.0, _seconds, "how long a caller may not read what was sent")
    head_timeout_s: float = _setting(10.0, _seconds, "how long a request's head may take")
    connection_limit: int = _setting(256, _count, "connections at once; more are closed at once")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Raises SettingsError with every problem. Unknown names are ``unknown``'s business."""
        values: dict[str, Any] = {}
        problems: list[str] = []
        known = {PREFIX + item.name.upper(): item for item in fields(cls)}
        for name, text in environ.items():
            if name in known and text.strip():
                try:
                    values[known[name].name] = known[name].metadata["read"](text.strip())
                except (ValueError, OverflowError) as error:
                    problems.append(f"{name}={text!r}: {error}")
        if problems:
            raise SettingsError(problems)
        values.setdefault("pod", f"default/{_hostname()}/unset")
        values.setdefault("work_dir", Path(tempfile.gettempdir()) / f"farmagent-{os.getpid()}")
        made = cls(**values)
        for folder in made.sweep:
            # what is swept belongs to a Chrome that has ended: the next one's folder must not be part of it
            if made.parent_dir.resolve().is_relative_to(folder.resolve()):
                problem = f"FARMAGENT_WORK_DIR={made.parent_dir} lies in the swept folder {folder}: "
                raise SettingsError([problem + "put it elsewhere, or take the folder out of FARMAGENT_SWEEP"])
        return made

    @property
    def parent_dir(self) -> Path:
        return cast("Path", self.work_dir)


def unknown(environ: Mapping[str, str] = os.environ) -> list[str]:
    """FARMAGENT_ names that are no settings: worth a log line, no more, because Kubernetes adds such names
    itself where a Service happens to be called farmagent.
    """
    known = {PREFIX + item.name.upper() for item in fields(Settings)}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def describe() -> str:
    """The list that --help prints."""
    lines: list[str] = []
    for item in fields(Settings):
        shown = item.default
        if isinstance(shown, range):
            shown = f"{shown[0]}-{shown[-1]}"
        elif isinstance(shown, tuple) and shown:
            shown = "{}:{}".format(*shown)
        tail = "" if shown in ("", None, ()) else f" [{shown}]"
        lines += [f"  {PREFIX}{item.name.upper()}", f"      {item.metadata['meaning']}{tail}"]
    return "\n".join(lines)
