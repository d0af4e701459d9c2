"""The whole life of one Chrome in one coroutine: wait, start, answer, be watched, die, leave nothing behind.

The rule: whatever happens, every process of it is dead and everything that it wrote is gone when the coroutine ends,
and its failure is told once, before the cleaning.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from farmagent import cancellation
from farmagent.chrome import cdp, leftover_files
from farmagent.chrome.binaries import SANDBOX_REFUSED, Binary
from farmagent.chrome.directories import ChromeDirectories, WorkDirectory, remove
from farmagent.chrome.flags import asked
from farmagent.chrome.heartbeats import Heartbeat
from farmagent.chrome.leftover_files import Places
from farmagent.chrome.processes import Start, launch
from farmagent.chrome.uids import ChromeUser, Uids, uids_in_use
from farmagent.errors import ChromeLostError, ChromeStartError
from farmagent.lease.states import ChromeAnswered, ChromeFailed, Event, StartChrome, Why
from farmagent.logs import log
from farmagent.settings import Settings

ORDERLY_S = (
    0.1  # Chrome closes its sockets well before it exits when asked to close; a killed one is gone by then
)
CLOSE_S = 3.0  # Browser.close takes 0.3 to 1.2 s


class Process(Protocol):
    """What is used of farmagent.chrome.processes.ChromeProcess."""

    pid: int
    directories: ChromeDirectories
    ws_url: str
    port: int
    exited: asyncio.Event
    returncode: int | None

    async def listening(self, *, timeout_s: float) -> None: ...
    def lift(self) -> None: ...
    def worked_s(self) -> float | None: ...
    def kill(self) -> None: ...


class Launch(Protocol):
    def __call__(self, binary: Binary, directories: ChromeDirectories, start: Start) -> Process: ...


@dataclass(slots=True)
class ChromeLauncher:
    """What every Chrome of this agent is made with. ``places``: where it may leave something besides its own
    directories; ``low_priority``: spares start below everything else.
    """

    settings: Settings
    binary: Binary
    work: WorkDirectory
    uids: Uids
    places: Places
    low_priority: bool
    launch: Launch = launch
    sandbox_works: bool = False  # a Chrome has answered with it

    def give_up_sandbox(self, why: str) -> bool:
        """Whether a Chrome that did not start may be tried without; so are all that follow then."""
        if self.settings.sandbox != "auto" or self.binary.no_sandbox or self.sandbox_works:
            return False
        if not SANDBOX_REFUSED.search(why):
            return False
        self.binary = replace(self.binary, no_sandbox=f"Chrome does not start with its sandbox here: {why}")
        log.warning("isolation", **self.binary.isolation())
        return True

    def sweep(self, uid: int) -> list[Path]:
        """Blocks; returns what could not be removed."""
        return leftover_files.remove(self.places.folders, uid, spared=(self.work.lock_path,))

    def clear(self) -> None:
        """Remove what Chromes of an agent that was killed have left. Blocks."""
        if self.uids.is_shared:
            self.sweep(os.geteuid())
            return
        left = leftover_files.owners(self.places.folders, self.settings.chrome_uids) - uids_in_use()
        for uid in left:
            if self.uids.lock(uid):
                self.sweep(uid)
                self.uids.give_back(ChromeUser(uid, uid))


@dataclass(slots=True)
class Browser:
    """``user``, ``process`` and ``heartbeat`` are None until there is one; ``has_page``: it has answered, and has the
    page that a caller finds. ``refused``: why it left by itself before its first answer, as one does that cannot make
    anything of its flags.
    """

    number: int
    why: Why
    user: ChromeUser | None = None
    process: Process | None = None
    heartbeat: Heartbeat | None = None
    version: dict[str, Any] = field(default_factory=dict)
    promoted: asyncio.Event = field(default_factory=asyncio.Event)
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)
    has_page: asyncio.Event = field(default_factory=asyncio.Event)
    connection: cdp.Browser | None = None
    refused: str = ""

    def promote(self) -> None:
        self.promoted.set()
        if self.process is not None:
            self.process.lift()

    def kill(self) -> None:
        self.unwanted.set()
        if self.process is not None:
            self.process.kill()

    async def close(self) -> None:
        """In order, so that Chrome writes what it has; by force when that takes too long."""
        if self.connection is not None and self.process is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self.connection.post("Browser.close")
                    await self.process.exited.wait()
            except (TimeoutError, cdp.CdpLost):
                pass
        self.kill()


async def live(
    browser: Browser, launcher: ChromeLauncher, command: StartChrome, tell: Callable[[Event], None]
) -> None:
    """``tell`` hears ChromeAnswered and, exactly once, ChromeFailed."""
    asked, why = False, ""
    try:
        if command.after_s:
            await cancellation.within(cancellation.first(browser.promoted, browser.unwanted), command.after_s)
        asked = await cancellation.unless(_serve(browser, launcher, command, tell), browser.unwanted)
    except cancellation.OverError:
        why = "unwanted"
    except (ChromeStartError, ChromeLostError, cdp.CdpError, cdp.CdpLost, OSError) as error:
        why = str(error)
    except Exception as error:  # a defect here must cost this Chrome, not the pod
        log.exception("chrome-fault", chrome=browser.number)
        why = repr(error)
    finally:
        if not browser.unwanted.is_set():
            code = browser.process.returncode if browser.process is not None else None
            log.info("chrome-ended", chrome=browser.number, asked=asked, returncode=code, detail=why)
            if code not in (None, -signal.SIGKILL) and not browser.has_page.is_set():
                browser.refused = why or f"exit code {code} at start"
        browser.kill()
        tell(ChromeFailed(browser.number, asked=asked))
        await _clean(browser, launcher)


async def _serve(
    browser: Browser, launcher: ChromeLauncher, command: StartChrome, tell: Callable[[Event], None]
) -> bool:
    """Start and watch; returns whether Chrome left in order."""
    settings = launcher.settings
    began = asyncio.get_running_loop().time()
    process = await _started(browser, launcher, command)
    async with cdp.connect(process.ws_url, timeout_s=settings.start_s) as connection:
        browser.connection = connection
        browser.heartbeat = Heartbeat(connection, every_s=settings.heartbeat_s, worked_s=process.worked_s)
        browser.version = await connection.send("Browser.getVersion", timeout_s=settings.start_s)
        launcher.sandbox_works |= not launcher.binary.no_sandbox
        start_s = asyncio.get_running_loop().time() - began
        log.info("chrome-started", chrome=browser.number, why=browser.why, start_s=round(start_s, 3))
        tell(ChromeAnswered(browser.number))
        # a third of a start again: the pod is free meanwhile, and only a handshake that comes at once waits for it
        await connection.send("Target.createTarget", {"url": "about:blank"}, timeout_s=settings.start_s)
        browser.has_page.set()
        return await _watched(process, browser.heartbeat, connection)


async def _started(browser: Browser, launcher: ChromeLauncher, command: StartChrome) -> Process:
    """A Chrome that listens; the first of all tries whether the machine lets it have its sandbox."""
    settings = launcher.settings
    browser.user = await launcher.uids.take()
    low = browser.why is Why.SPARE and launcher.low_priority and not browser.promoted.is_set()
    flags, environment = settings.chrome_args, {}
    if command.options is not None:
        flags += asked(command.options)
        environment = {"TZ": command.options.timezone} if command.options.timezone else {}
    start = Start(browser.user, flags, environment, low=low)
    while True:
        process = browser.process = launcher.launch(launcher.binary, launcher.work.fresh(browser.user), start)
        try:
            await process.listening(timeout_s=settings.start_s)
        except ChromeStartError as error:
            if not launcher.give_up_sandbox(str(error)):
                raise
            process.kill()
            await process.exited.wait()
            await asyncio.to_thread(_remove, browser.user, process, launcher)
        else:
            return process


async def _watched(process: Process, heartbeat: Heartbeat, connection: cdp.Browser) -> bool:
    """Until Chrome is gone. True: it left in order (exit code 0, or its sockets closed while it lives on).
    Raises ChromeLostError for a frozen one.
    """
    try:
        await cancellation.unless(heartbeat.watch(), process.exited)
    except cancellation.OverError:
        pass
    except ChromeLostError:
        if not connection.ended.is_set():
            raise
        await cancellation.within(process.exited.wait(), ORDERLY_S)
    return process.returncode in (0, None)


async def _clean(browser: Browser, launcher: ChromeLauncher) -> None:
    if browser.user is None:
        return
    if browser.process is not None:
        await browser.process.exited.wait()
    pids, paths = await asyncio.to_thread(_remove, browser.user, browser.process, launcher)
    if pids or paths:
        log.error("chrome-left", chrome=browser.number, pids=pids, paths=[str(path) for path in paths])
    if launcher.uids.is_shared or not (pids or paths):
        launcher.uids.give_back(browser.user)  # else nobody gets this uid again


def _remove(
    user: ChromeUser, process: Process | None, launcher: ChromeLauncher
) -> tuple[list[int], list[Path]]:
    """The processes first, also those in sessions of their own (crash handlers): nothing writes any more then.
    Returns what is left of both.
    """
    pids = launcher.uids.end_processes(user)
    root = process.directories.root if process is not None else None
    paths = [root] if root is not None and not remove(root) else []
    return pids, paths + launcher.sweep(user.uid)
