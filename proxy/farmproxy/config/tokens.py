"""Who a caller is, by its token, and the key shared with the agents. All wrong tokens take the same time, and a
file that turns unreadable or wrong leaves the last good content standing: nobody is locked out by a slip.
"""

import hashlib
import hmac
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from farmwire import bounds
from structlog.typing import FilteringBoundLogger

from farmproxy.config.settings import SettingsError

CHECK_INTERVAL_S = 1.0
LARGEST_FILE_BYTES = 1024 * 1024

T = TypeVar("T")


@dataclass
class _WatchedFile(Generic[T]):
    """A small file's parsed content, read again when its inode, time or size changes."""

    variable: str
    path: str
    parse: Callable[[str], T]
    clock: Callable[[], float]
    log: FilteringBoundLogger
    value: T = field(init=False)
    _stamp: tuple[int, int, int] = field(init=False, default=(0, 0, 0))
    _checked_at: float = field(init=False)
    _complaint: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self._checked_at = self.clock()
        try:
            self.value = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError([f"{self.variable} is {self.path!r}; {_why(error)}"]) from error

    def current(self) -> T:
        now = self.clock()
        if now - self._checked_at >= CHECK_INTERVAL_S:
            self._checked_at = now
            self._look_again()
        return self.value

    def _look_again(self) -> None:
        before = self._stamp
        try:
            if _stamp(Path(self.path).stat()) != before:
                self.value = self._read()
                self._complaint = ""
                self.log.info("file-read-again", variable=self.variable)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                self._stamp = before  # nothing was read: look again, whatever the stamp
            self._complain(_why(error))

    def _complain(self, detail: str) -> None:
        if detail != self._complaint:  # once, not each second
            self.log.error("file-kept-last-good", variable=self.variable, detail=detail)
        self._complaint = detail

    def _read(self) -> T:
        with Path(self.path).open("rb") as file:
            # The stamp is taken before the content: a change in between is seen at the next look.
            self._stamp = _stamp(os.fstat(file.fileno()))
            content = file.read(LARGEST_FILE_BYTES + 1)
        if len(content) > LARGEST_FILE_BYTES:
            msg = f"allowed: at most {LARGEST_FILE_BYTES} bytes"
            raise ValueError(msg)
        return self.parse(content.decode("utf-8"))


class Tokens:
    """Tokens of callers and the key of agents; both files optional, both re-read when they change."""

    def __init__(
        self,
        tokens_file: str,
        agent_key_file: str,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """SettingsError when a named file cannot be used at the start."""
        self._tokens = (
            _WatchedFile("FARMPROXY_TOKENS_FILE", tokens_file, parse_tokens, clock, log)
            if tokens_file
            else None
        )
        self._key = (
            _WatchedFile("FARMPROXY_AGENT_KEY_FILE", agent_key_file, parse_key, clock, log)
            if agent_key_file
            else None
        )

    @property
    def required(self) -> bool:
        """Whether callers need a token at all."""
        return self._tokens is not None

    def check(self, presented: str) -> str | None:
        """The name that goes with this token, or None. Every token is compared, whichever matches."""
        if self._tokens is None:
            return None
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        found = None
        for known, name in self._tokens.current():
            if hmac.compare_digest(known, digest):
                found = name
        return found

    @property
    def agent_key(self) -> str | None:
        return None if self._key is None else self._key.current()


def parse_tokens(text: str) -> list[tuple[bytes, str]]:
    """(sha256 of the token, name) of each line ``name:token``; # starts a comment line."""
    found: list[tuple[bytes, str]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, _, token = (part.strip() for part in line.partition(":"))
        if not name or not token or not name.isprintable() or not token.isprintable():
            msg = f"line {number} is wrong; allowed: name:token, comments with #"  # never shows the token
            raise ValueError(msg)
        digest = hashlib.sha256(token.encode()).digest()
        if any(digest == known and name != other for known, other in found):
            msg = f"line {number} repeats the token of another name; allowed: each token once"
            raise ValueError(msg)
        found.append((digest, name))
    if not found:
        raise ValueError("it names no token; allowed: at least one line name:token")
    return found


def parse_key(text: str) -> str:
    """The key as one header value."""
    key = text.strip()
    if not 0 < len(key) <= bounds.KEY_CHARS or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(
            f"allowed: one line of printable ASCII without spaces, at most {bounds.KEY_CHARS} characters"
        )
    return key


def _stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or error}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(error)
