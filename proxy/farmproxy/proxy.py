"""The proxy put together: core, driver, door, agent client and their timers, and what the admin port sees of them."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from farmproxy.config.parsers import HostPort
from farmproxy.config.settings import Settings, limits
from farmproxy.config.tokens import Tokens
from farmproxy.core.events import PodsChanged
from farmproxy.core.farm import Farm
from farmproxy.core.snapshots import PoolView
from farmproxy.door.context import Door
from farmproxy.door.listener import Listener
from farmproxy.driver import Driver
from farmproxy.net.poller import Handler, Poller
from farmproxy.net.wakeups import Wakeup
from farmproxy.observe import logs
from farmproxy.observe.metrics import Metrics
from farmproxy.registry.leases import LeaseBook
from farmproxy.tunnel.lingering_close import LingeringClose
from farmproxy.tunnel.tunnels import RelayDesk
from farmproxy.upstream.agent_client import AgentClient
from farmproxy.upstream.chrome_versions import Versions
from farmproxy.upstream.dials import DialDesk
from farmproxy.upstream.readiness_polls import ReadinessPolls

SWEEP_S = 0.25  # precision of all limits but the core's own
LOGGED_STALL_S = 1.0


class Proxy:
    """Implements ``admin.views.AdminView``. Give it pods by ``pods_changed``, as the watch does."""

    def __init__(
        self,
        settings: Settings,
        tokens: Tokens,
        log: FilteringBoundLogger,
        *,
        descriptors: int,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``descriptors``: how many this process may have open."""
        self.settings = settings
        self.log = log
        self.metrics = metrics or Metrics(settings.pools)
        self.farm = Farm(limits(settings, descriptors))
        self.draining = False
        self.watch_age: Callable[[], float] = lambda: 0.0
        self.all_listed: Callable[[], bool] = lambda: True
        self._clock = clock
        self._descriptors = descriptors - 64  # for the log, the admin port, the watch
        self.poller = Poller(self._on_bug)
        self.book = LeaseBook(clock)
        self.lingering_close = LingeringClose(self.poller, clock)
        self.dials = DialDesk(self.poller, settings, clock)
        self.relays = RelayDesk(
            self.poller,
            self.lingering_close,
            self.metrics,
            clock,
            stall_s=settings.stall_s,
            keepalive_s=settings.keepalive_s,
            idle_s=settings.lease_idle_s,
        )
        self.agent_client = AgentClient(
            self.poller,
            clock,
            connect_s=settings.connect_timeout_s,
            answer_s=settings.handshake_timeout_s,
        )
        self.versions = Versions(self.agent_client, clock)
        self.driver = Driver(
            self.farm,
            dials=self.dials,
            readiness_polls=ReadinessPolls(self.agent_client),
            book=self.book,
            metrics=self.metrics,
            log=log,
            clock=clock,
            agent_key=lambda: tokens.agent_key,
        )
        self.door = Door(
            settings,
            poller=self.poller,
            driver=self.driver,
            dials=self.dials,
            relays=self.relays,
            lingering_close=self.lingering_close,
            book=self.book,
            tokens=tokens,
            metrics=self.metrics,
            versions=self.versions,
            log=log,
            clock=clock,
            room=self.room,
        )
        self.listener = Listener(self.door)
        self._wakeup: Wakeup | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweep_due = 0.0
        self.metrics.read_from(self.farm.counts, self.watch_age_s)

    def start(self) -> None:
        """Run on the running loop; the door stays closed until ``open_door``."""
        loop = asyncio.get_running_loop()
        self.poller.start(loop)
        self._wakeup = Wakeup(loop, self._wake)
        self._sweep_due = self._clock()
        self.driver.start(self._wakeup)
        self._sweep()

    def open_door(self) -> HostPort:
        settings = self.settings
        bound = self.listener.start(settings.door, keepalive_s=settings.keepalive_s)
        self.log.info("door-open", address=str(bound))
        return bound

    def stop(self) -> None:
        """Close what is still open."""
        self.listener.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._wakeup is not None:
            self._wakeup.stop()
        self.driver.lease_log.settle_all()
        self.agent_client.close()
        self.relays.pipes.close()
        self.poller.stop()
        logs.flush()

    def pods_changed(self, event: PodsChanged) -> None:
        self.versions.pods_changed(event)
        self.driver.tell(event)

    def room(self) -> int:
        """Descriptors left, those counted as taken that callers already here will need for their pods."""
        return self._descriptors - len(self.poller.handlers) - self.relays.pipes.open - self.driver.waiting

    @property
    def busy(self) -> bool:
        """Whether anything is left that a drain waits for."""
        return bool(self.driver.lease_requests) or len(self.lingering_close) > 0

    # --- for the admin port

    @property
    def services(self) -> Mapping[str, str]:
        return self.settings.pools

    @property
    def listed(self) -> bool:
        return self.all_listed()

    @property
    def door_open(self) -> bool:
        return self.listener.open

    def watch_age_s(self) -> float:
        return self.watch_age()

    def snapshot(self) -> Mapping[str, PoolView]:
        return self.farm.snapshot(self._clock())

    def metrics_text(self) -> bytes:
        return self.metrics.text()

    # ---

    def _wake(self) -> None:
        """A deadline of the core: what has come before it counts, also when this process slept over both."""
        self.poller.catch_up()
        self.driver.wake()

    def _sweep(self) -> None:
        """Limits are judged by what was read: a process that was stopped, or starved, first looks at its sockets."""
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        now = self._clock()
        late_s, self._sweep_due = now - self._sweep_due, now + SWEEP_S
        if late_s > SWEEP_S:
            self.metrics.loop_stall_seconds.observe(late_s)
            if late_s > LOGGED_STALL_S:
                self.log.warning("stalled", for_s=round(late_s, 3))
        self.poller.catch_up()
        logs.flush()
        self.agent_client.keeps = self.room() > self._descriptors // 4
        for each in (self.dials, self.agent_client, self.relays, self.lingering_close, self.door, self.book):
            try:
                each.sweep()
            except Exception as error:
                self._on_bug(error, each.sweep)

    def _on_bug(self, error: BaseException, handler: Handler | Callable[[], None]) -> None:
        """A handler raised. Its connection is closed, if it has one; the others go on."""
        self.log.error("bug", handler=getattr(handler, "__qualname__", ""), exc_info=error)
        owner: Any = getattr(handler, "__self__", None)
        if hasattr(owner, "give_up"):
            with contextlib.suppress(Exception):  # logged once is enough; the core must learn of the end
                owner.give_up()
