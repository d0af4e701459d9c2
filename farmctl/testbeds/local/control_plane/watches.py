"""One watch of EndpointSlices: the changes since a version, bookmarks on time, an end when its time is over.

A watcher that falls behind the history is told so by an ERROR event with code 410 in mid-stream, as the real
API server does; one that starts too late is told by the status line, before this module is asked.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from farmctl.testbeds.local.control_plane.selectors import Selector, as_seen
from farmctl.testbeds.local.control_plane.store import Change, Store, TooOld

encode = msgspec.json.encode


class Bell:
    """Wakes everyone who waits, each time it rings."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return at the next ring, or after ``timeout_s``."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)


class Writer(Protocol):
    async def write(self, data: bytes) -> None: ...


@dataclass(slots=True)
class Watch:
    """``version``: where the reader stands; ``ends_at``: loop time; ``bookmark_s`` None: none are wanted."""

    store: Store
    bell: Bell
    selector: Selector
    version: int
    ends_at: float
    bookmark_s: float | None

    async def run(self, out: Writer, first: list[Change]) -> None:
        """Write until the time is over or the reader is gone (its error is raised)."""
        clock = asyncio.get_running_loop().time
        await self._write(out, first)
        marked = clock()
        while (now := clock()) < self.ends_at:
            try:
                changes = self.store.since(self.version)
            except TooOld as error:
                await out.write(line("ERROR", status(410, "Expired", str(error))))
                return
            self.version = self.store.version
            await self._write(out, changes)
            if self.bookmark_s is not None and now - marked >= self.bookmark_s:
                marked = now
                await out.write(line("BOOKMARK", bookmark(self.version)))
            if self.store.version == self.version:
                due = self.ends_at if self.bookmark_s is None else min(self.ends_at, marked + self.bookmark_s)
                await self.bell.wait(max(0.0, due - clock()))

    async def _write(self, out: Writer, changes: list[Change]) -> None:
        seen = (as_seen(change, self.selector) for change in changes)
        lines = [line(change.type, change.slice) for change in seen if change]
        if lines:
            await out.write(b"".join(lines))


def line(kind: str, obj: Mapping[str, Any]) -> bytes:
    return encode({"type": kind, "object": obj}) + b"\n"


def bookmark(version: int) -> dict[str, Any]:
    """Everything but the version is nulled, so a reader that takes it for a slice empties its pool."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
        "addressType": "",
        "endpoints": None,
        "ports": None,
    }


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """The API's Status object of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
