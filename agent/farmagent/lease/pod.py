"""Runs the state machine: tells it what happened, does what it commands, wakes who waits for "free".

The rule: this is the machine's only caller, in one thread, and a command is done before the next event is told.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from farmwire.launch_options import LaunchOptions
from farmwire.reasons import Busy, End

from farmagent import cancellation
from farmagent.errors import ChromeLostError
from farmagent.lease import browsers
from farmagent.lease.browsers import Browser, ChromeLauncher
from farmagent.lease.metrics import AgentMetrics
from farmagent.lease.states import (
    AgentBegan,
    ChromeAnswered,
    ChromeFailed,
    ChromeSilent,
    Command,
    DrainAsked,
    DrainPassed,
    EndLease,
    Event,
    Grant,
    KillChrome,
    LeaseAsked,
    LeaseClosed,
    LeaseUsed,
    Leave,
    PodStates,
    PromoteSpare,
    Refuse,
    StartChrome,
    State,
    Why,
)
from farmagent.logs import log

ANSWER_S = 1.5  # how long a handshake waits for a Chrome that is silent: its caller may have another pod's
OWN_CHROME_S = (
    20.0  # for a lease's own Chrome to answer: within the proxy's limit for preparing, and 20 usual starts
)
MAX_SLACK_S = 5.0  # the proxy ends a lease at its longest time; the agent only where the proxy did not


@dataclass(slots=True)
class LiveLease:
    """The running lease. ``over`` is set once, when every connection of it must close; ``own``: a Chrome that was
    started for it, with options of its caller's.
    """

    id: str
    own: Browser | None = None
    began: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    limit: asyncio.TimerHandle | None = None


class Pod:
    """``on_exit`` is called after each Chrome's end (PID 1 then looks for orphans)."""

    def __init__(self, launcher: ChromeLauncher, *, on_exit: Callable[[], object] = lambda: None) -> None:
        self.settings = launcher.settings
        self.metrics = AgentMetrics()
        self.metrics.isolation(lambda: launcher.binary)
        self.lease: LiveLease | None = None
        self.version: dict[str, Any] = {}
        self.drained = asyncio.Event()
        spare_after_s = launcher.settings.spare_after_s if launcher.settings.recycle == "spare" else None
        self._states = PodStates(spare_after_s=spare_after_s)
        self._launcher = launcher
        self._on_exit = on_exit
        self._browsers: dict[int, Browser] = {}
        self._changed = asyncio.Event()
        self._events: deque[Event] = deque()
        self._telling = False
        self._lease_ended_at = 0.0
        self._group: asyncio.TaskGroup | None = None
        self._closed = False

    # what is asked of it

    @property
    def state(self) -> State:
        return self._states.state

    @property
    def busy(self) -> Busy | None:
        return self._states.busy

    @property
    def isolation(self) -> dict[str, str]:
        """For /readyz?verbose; the first Chrome may find that it cannot have its sandbox."""
        return self._launcher.binary.isolation()

    def end_of(self, lease: str) -> End | None:
        return self._states.ends.get(lease)

    def is_ready(self) -> bool:
        """What /readyz means without ?wait."""
        if self.settings.ready == "healthy":
            return self.state in (State.FREE, State.LEASED, State.RECYCLING)
        return self.busy is None

    @property
    def chrome(self) -> Browser | None:
        """The main Chrome, once the agent is connected to it."""
        browser = self._browsers.get(self._states.main or 0)
        return browser if browser is not None and browser.heartbeat is not None else None

    def owns(self, pid: int) -> bool:
        """Whether this is a Chrome whose exit its own watcher takes."""
        return any(
            browser.process is not None and browser.process.pid == pid for browser in self._browsers.values()
        )

    async def until_free(self, wait_s: float) -> bool:
        """Whether it is free, after at most ``wait_s``; a draining pod never will be, so it answers at once."""
        try:
            async with asyncio.timeout(wait_s):
                while self.busy is not None and self.state is not State.DRAINING:
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.busy is None

    # leases

    def ask_lease(
        self, lease: str, *, max_s: float, options: LaunchOptions | None = None
    ) -> LiveLease | Busy:
        self.tell(LeaseAsked(lease, options))
        if self.lease is None or self.lease.id != lease or self.lease.limit is not None:
            return self.busy or Busy.BUSY
        self.limit_lease(self.lease, max_s=max_s)
        return self.lease

    def limit_lease(self, lease: LiveLease, *, max_s: float) -> None:
        """End the lease so long from now, whatever was its limit before."""
        if lease.limit is not None:
            lease.limit.cancel()
        lease.limit = asyncio.get_running_loop().call_later(
            max_s + MAX_SLACK_S, self.tell, LeaseClosed(lease.id, End.MAX)
        )

    async def check_chrome(self, lease: LiveLease) -> None:
        """Return once the main Chrome has a page and has answered now, or the lease is over because it has not."""
        if lease.own is not None:
            if not await cancellation.within(lease.own.has_page.wait(), OWN_CHROME_S):
                lease.own.kill()
                await lease.over.wait()
            return
        chrome = self.chrome
        if chrome is None or chrome.heartbeat is None:
            await lease.over.wait()
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await chrome.has_page.wait()
                if await chrome.heartbeat.answers(ANSWER_S):
                    return
        except TimeoutError:
            pass
        except ChromeLostError:
            # its own watcher is about to tell; by force, should it not: a dead Chrome must never look free
            chrome.kill()
            await lease.over.wait()
            return
        log.warning("chrome-silent", chrome=chrome.number, lease=lease.id)
        self.tell(ChromeSilent(chrome.number))
        self._spawn(self._ask_again(chrome))
        await lease.over.wait()

    def lease_began(self, lease: LiveLease) -> None:
        lease.began = True
        log.info("lease-began", lease=lease.id)

    def lease_used(self, lease: str) -> None:
        self.tell(LeaseUsed(lease))

    def lease_closed(self, lease: str, end: End) -> None:
        self.tell(LeaseClosed(lease, end))

    # life

    async def run(self) -> None:
        """Until drained; every Chrome is dead and its directories are gone then."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self.tell(AgentBegan())
            try:
                await self.drained.wait()
            finally:
                self._closed = True
                for browser in self._browsers.values():
                    browser.kill()

    def drain(self) -> None:
        """SIGTERM; a second one ends the session at once."""
        if self.state is not State.DRAINING:
            log.info("draining", lease=self.lease.id if self.lease is not None else None)
            asyncio.get_running_loop().call_later(self.settings.grace_s, self.tell, DrainPassed())
        self.tell(DrainAsked())

    def tell(self, event: Event) -> None:
        """In order: an event told while a command runs waits for its turn."""
        self._events.append(event)
        if self._telling or self._closed:
            return
        self._telling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._telling = False

    def _handle(self, event: Event) -> None:
        before = self.state
        now = asyncio.get_running_loop().time()
        for command in self._states.handle(event, now):
            self._do(command)
        if (
            isinstance(event, ChromeAnswered)
            and self.chrome is not None
            and self.chrome.why is not Why.OPTIONS
        ):
            self.version = (
                self.chrome.version
            )  # which the world may read: a lease's own has a caller's user agent
        if self.state is not before:
            self._state_changed(before, now)

    def _state_changed(self, before: State, now: float) -> None:
        self.metrics.state(self.state)
        if self.state is State.FREE:
            if before is State.RECYCLING:
                recycle_s = now - self._lease_ended_at
                self.metrics.recycled(recycle_s)
                log.info("recycled", recycle_s=round(recycle_s, 4))
            log.info("free")
        elif self.state is State.BROKEN:
            log.error("broken", detail="Chrome does not start; see the chrome-ended lines before")
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _do(self, command: Command) -> None:
        match command:
            case StartChrome():
                self._start(command)
            case PromoteSpare(chrome):
                self._promote(self._browsers[chrome])
            case KillChrome(chrome):
                if chrome in self._browsers:
                    self._browsers[chrome].kill()
            case Grant(lease):
                self.lease = LiveLease(lease)
            case Refuse(lease, busy):
                log.info("lease-refused", lease=lease, busy=busy)
            case EndLease(lease, end):
                self._end_lease(lease, end)
            case Leave() if self._group is None:
                self.drained.set()  # a SIGTERM before ``run``: nothing was started yet
            case Leave(chrome, at_once):
                self._spawn(self._leave(self._browsers.get(chrome or 0), at_once=at_once))

    def _start(self, command: StartChrome) -> None:
        self.metrics.chrome_started(command.why)
        browser = Browser(command.chrome, command.why)
        self._browsers[browser.number] = browser
        if command.options is not None and self.lease is not None:
            self.lease.own = browser
        self._spawn(self._live(browser, command))

    async def _live(self, browser: Browser, command: StartChrome) -> None:
        try:
            await browsers.live(browser, self._launcher, command, self.tell)
        finally:
            self._browsers.pop(browser.number, None)
            self._on_exit()

    def _promote(self, browser: Browser) -> None:
        browser.promote()
        if browser.heartbeat is not None:
            self._spawn(self._ask_again(browser))

    async def _ask_again(self, browser: Browser) -> None:
        if browser.heartbeat is None:
            return
        try:
            await browser.heartbeat.ask()
            await cancellation.first(browser.has_page, browser.unwanted)
        except ChromeLostError as error:
            log.warning("chrome-lost", chrome=browser.number, detail=str(error))
            self.tell(ChromeFailed(browser.number))
            browser.kill()
        else:
            self.tell(ChromeAnswered(browser.number))

    def _end_lease(self, lease: str, end: End) -> None:
        live, self.lease = self.lease, None
        if live is None or live.id != lease:
            return
        if live.limit is not None:
            live.limit.cancel()
        self._lease_ended_at = asyncio.get_running_loop().time()
        self.metrics.lease_ended(end)
        if live.began:
            log.info("lease-ended", lease=lease, end=end)
        live.over.set()

    async def _leave(self, chrome: Browser | None, *, at_once: bool) -> None:
        if chrome is not None and not at_once:
            # a second SIGTERM (told to the machine, which has left already) need not wait longer than this
            await cancellation.within(chrome.close(), browsers.CLOSE_S + 1)
        self.drained.set()

    def _spawn(self, work: Any) -> None:
        if self._group is None:
            raise RuntimeError("the pod does not run")
        self._group.create_task(work)
