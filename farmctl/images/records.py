"""Writes down what each build step took, as it happens: the one source of "how long does a cold build take".

A line a step that really ran, in the user's cache folder beside what was built; nothing is measured again for a report.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

FILE = "builds.jsonl"
KEPT_LINES, MOST_BYTES = 400, 1 << 18


class Built(msgspec.Struct, frozen=True):
    """``what`` is the version or tag that was made; ``load`` the machine's load average (1 min) at the end.

    ``cold``: nothing of an earlier build was taken for it, as far as the engine tells.
    """

    step: str
    what: str
    seconds: float
    at: str  # ISO 8601, UTC
    load: float
    cold: bool = True


@contextmanager
def timed(folder: Path, step: str, what: str) -> Iterator[None]:
    """Record the block under ``folder`` when it ends well: what failed has built nothing."""
    began = time.monotonic()
    yield
    keep(folder, step, what, time.monotonic() - began)


def keep(folder: Path, step: str, what: str, seconds: float, *, cold: bool = True) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    built = Built(step, what, round(seconds, 1), now, round(os.getloadavg()[0], 1), cold)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    with path.open("ab") as out:
        out.write(msgspec.json.encode(built) + b"\n")
        grown = out.tell() > MOST_BYTES
    if grown:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[-KEPT_LINES:]))


def read(folder: Path) -> list[Built]:
    """Every step that was recorded, oldest first; bounded. A line of another version is left out."""
    try:
        lines = (folder / FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines[-KEPT_LINES:]:
        try:
            found.append(msgspec.json.decode(line, type=Built))
        except msgspec.DecodeError:
            continue
    return found


def coldest(built: list[Built]) -> dict[str, Built]:
    """The longest cold record of each step: what was there already makes a step shorter, never longer."""
    found: dict[str, Built] = {}
    for one in built:
        if one.cold and (one.step not in found or one.seconds > found[one.step].seconds):
            found[one.step] = one
    return found
