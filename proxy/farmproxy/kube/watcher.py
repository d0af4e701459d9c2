"""Keeps one pool's SliceBook true: list, then watch from the list's version, for ever. While the API server is away
the last known pool stands; a fault of this code is not survived, so that the process ends and is seen to end.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
from farmwire.reasons import WatchRestart
from structlog.typing import FilteringBoundLogger

from farmproxy.config.settings import Settings
from farmproxy.core.events import PodsChanged
from farmproxy.kube.api import SliceApi
from farmproxy.kube.credentials import Credentials
from farmproxy.kube.endpoint_slices import EndpointSlice
from farmproxy.kube.messages import UNREADABLE, decode_event, decode_slice, status_from
from farmproxy.kube.restarts import Backoff, Interrupted
from farmproxy.kube.slice_sets import SliceBook
from farmproxy.observe.metrics import Metrics

HEALTHY_AFTER_S = 1.0  # a watch that lasted so long was one, even if nothing happened in it
RELIST_AFTER_REFUSALS = 5  # a version from a lost future (a restored store) is refused for ever


class Watcher:
    """One for each pool. ``on_change`` is called with every change, first with the pods of the first list if it has any."""

    def __init__(
        self,
        settings: Settings,
        pool: str,
        service: str,
        on_change: Callable[[PodsChanged], None],
        metrics: Metrics,
        log: FilteringBoundLogger,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """SettingsError when the CA file cannot be used."""
        self.listed = False
        self._log = log.bind(pool=pool)
        self._book = SliceBook(pool, settings.port_name)
        self._on_change = on_change
        self._metrics = metrics
        self._pause = pause
        self._clock = clock
        ca_file = settings.kube_ca_file if settings.kube_api.startswith("https:") else None
        self._credentials = Credentials(settings.kube_token_file, ca_file, self._log, clock)
        self._api = SliceApi(settings, service, self._credentials)
        self._backoff = Backoff()
        self._heard_at = clock()
        self._resume_at: str | None = None
        self._list_whole = False
        self._unknown_types: set[str] = set()

    def age_s(self, now: float) -> float:
        """Since the API server last said anything; ``now`` of the clock that was given."""
        return max(0.0, now - self._heard_at)

    async def run(self) -> None:
        """For ever; what it raises is a fault of the proxy."""
        async with self._api:
            while True:
                try:
                    if self._resume_at is None:
                        self._resume_at = await self._list()
                    await self._watch(self._resume_at)
                except Interrupted as why:
                    await self._pause(self._after(why))

    async def _list(self) -> str:
        listing = self._book.listing()
        version = ""
        async with aclosing(self._api.pages(whole=self._list_whole)) as pages:
            async for page in pages:
                self._heard_at = self._clock()
                # All pages show one moment; were they not to, the first version loses nothing.
                version = version or (page.metadata and page.metadata.resourceVersion) or ""
                for item in page.items or ():
                    if (seen := self._slice(item)) is not None:
                        listing.add(seen)
        if not version:
            raise Interrupted(WatchRestart.GARBAGE, "a list without resourceVersion", relist=True)
        self._list_whole = False
        change = listing.finish()
        self._tell(change)
        if not self.listed:
            self._log.info("pods-listed", pods=len(change.seen))
        self.listed = True
        return version

    async def _watch(self, version: str) -> None:
        opened_at: float | None = None
        try:
            async with aclosing(self._api.lines(version)) as lines:
                async for line in lines:
                    self._heard_at = self._clock()
                    opened_at = self._heard_at if opened_at is None else opened_at
                    if line is not None:
                        self._event(line)
        finally:
            # Whatever ended it, and whether anything happened in it. One that ends at once is none, even if it spoke.
            if opened_at is not None and self._clock() - opened_at >= HEALTHY_AFTER_S:
                self._backoff.healthy()

    def _event(self, line: bytes) -> None:
        try:
            event = decode_event(line)
        except UNREADABLE as error:
            raise Interrupted(WatchRestart.GARBAGE, str(error)[:200], relist=True) from error
        if event.type == "ERROR":
            raise _error(event.object)
        if event.type not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}:
            self._skip(str(event.type))
            return
        seen = self._slice(event.object)
        if seen is None:
            return
        if event.type == "DELETED":
            self._tell(self._book.deleted(seen.name))
        elif event.type != "BOOKMARK":  # a bookmark's object holds a version and nothing else
            self._tell(self._book.changed(seen))
        if seen.metadata and seen.metadata.resourceVersion:
            self._resume_at = seen.metadata.resourceVersion

    def _slice(self, raw: msgspec.Raw) -> EndpointSlice | None:
        try:
            return decode_slice(raw)
        except UNREADABLE as error:
            self._metrics.endpoints_ignored.inc()
            self._log.error("slice-unreadable", detail=str(error)[:200])  # one bad object, not all
            return None

    def _tell(self, change: PodsChanged) -> None:
        for notice in self._book.notices:
            self._log.warning("slice-notice", detail=notice)
        self._metrics.endpoints_ignored.value += self._book.take_ignored()
        self._book.notices.clear()
        if change.seen or change.gone:
            self._on_change(change)

    def _skip(self, kind: str) -> None:
        if kind not in self._unknown_types and len(self._unknown_types) < 100:
            self._unknown_types.add(kind)
            self._log.warning("watch-event-unknown", type=kind[:100])

    def _after(self, why: Interrupted) -> float:
        """Note why, decide where to go on, and say how long to pause."""
        self._metrics.watch_restarts[why.reason].inc()
        renewed = {
            WatchRestart.UNAUTHORIZED: self._credentials.reread,
            WatchRestart.BROKEN: self._credentials.reread_trust,
        }.get(why.reason)
        if renewed is not None and renewed():
            self._backoff.healthy()
        refused_for_ever = (
            why.reason is WatchRestart.REFUSED and self._backoff.failures >= RELIST_AFTER_REFUSALS
        )
        if self._resume_at is None and why.reason is WatchRestart.GONE:
            self._list_whole = True  # its pages grew too old while they were read
        if why.relist or refused_for_ever:
            self._resume_at = None
        pause_s = self._backoff.next_pause_s(why.retry_after_s)
        self._log.info("watch-restarted", reason=why.reason, detail=why.detail, pause_s=round(pause_s, 3))
        return pause_s


def _error(raw: msgspec.Raw) -> Interrupted:
    status = status_from(raw)
    detail = f"ERROR event: {status.code} {status.reason or ''} {status.message or ''}"[:200]
    reason = WatchRestart.GONE if status.gone else WatchRestart.ERROR
    return Interrupted(reason, detail, relist=True, retry_after_s=status.retry_after_s)
