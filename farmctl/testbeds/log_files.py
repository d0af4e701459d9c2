"""Log files of pods, proxy and supervisor: kept while the testbed lives, bounded in size, never in the way.

A child appends to its file itself, so a busy or dead supervisor loses no line; what is over the bound is moved
aside (one older file is kept) by copying and truncating, which an appending writer does not notice.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FILE_LIMIT_BYTES = 8 * 1024 * 1024
DEAD_PODS_KEPT = 200


class Logs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def open(self, name: str) -> BinaryIO:
        """For a child to append to."""
        return self.path(name).open("ab")

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.log"))

    def lines(self, name: str) -> list[str]:
        """Older lines first; empty when nothing was ever written. A line still being written is left out."""
        text = b"".join(_read(path) for path in (self._older(name), self.path(name)))
        return text.decode(errors="replace").split("\n")[:-1]

    def since(self, name: str, mark: float) -> list[str]:
        """JSON lines whose ``t`` is at or after wall-clock ``mark``."""
        return [line for line in self.lines(name) if written_at(line) >= mark]

    def bound(self, limit: int = FILE_LIMIT_BYTES) -> None:
        for path in self.folder.glob("*.log"):
            if path.stat().st_size > limit:
                self._older(path.stem).write_bytes(path.read_bytes())
                with path.open("r+b") as file:
                    file.truncate(0)

    def drop_oldest(self, names: list[str], keep: int = DEAD_PODS_KEPT) -> list[str]:
        """Remove the logs of all but the last ``keep`` names; return the names kept."""
        for name in names[:-keep]:
            for path in (self.path(name), self._older(name)):
                path.unlink(missing_ok=True)
        return names[-keep:]

    def _older(self, name: str) -> Path:
        return self.folder / f"{name}.log.1"


def _read(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def written_at(line: str) -> float:
    """The ``t`` of a JSON log line; 0 when it is none."""
    try:
        value = json.loads(line)
        return float(value["t"])
    except (ValueError, TypeError, KeyError):
        return 0.0


def tail(path: Path, lines: int = 20, limit: int = 64 * 1024) -> list[str]:
    """The last lines of a file that may be huge or absent."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - limit))
        return file.read().decode(errors="replace").splitlines()[-lines:]
    return []


def follow(path: Path, start: int) -> Iterator[str | None]:
    """Lines written after byte ``start``; None each time there is nothing new. Starts over after a truncation."""
    rest = b""
    while True:
        try:
            with path.open("rb") as file:
                if file.seek(0, 2) < start:
                    start = 0
                file.seek(start)
                chunk = file.read()
        except FileNotFoundError:
            chunk = b""
        start += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        if not whole:
            yield None
        for line in whole:
            yield line.decode(errors="replace")
