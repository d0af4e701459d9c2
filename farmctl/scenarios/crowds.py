"""The callers of one scenario and the tasks they run in: real ones, of three kinds, all through the door.

``browse`` and ``sit`` are Playwright's connect_over_cdp, ``render`` is POST /render, ``raw`` a hand-made
WebSocket. A caller's task never raises: whatever happens to it becomes its fate.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from farmctl.client import (
    DoorUnreachable,
    FarmError,
    JobLost,
    LostJobPolicy,
    Refused,
    connect,
    render,
    run_job,
)
from farmctl.client.endpoints import LeaseOptions
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.drivers import Driver
from farmctl.scenarios.pages import PageJob
from farmctl.scenarios.results import Fate, Outcome
from farmctl.scenarios.sockets import RawCaller
from farmctl.scenarios.timeline import Listener, Timeline

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

HOLD_S = 120.0  # how long a scenario's caller is ready to be held, unless it says otherwise
PAGE_LIMIT_S = 60.0
ONCE = LostJobPolicy(attempts=1)


@dataclass(frozen=True, slots=True)
class Ask:
    """How a caller asks: seconds it may be held, seconds its lease may last, whether a lost job runs again,
    and whether the scenario means it to be refused.
    """

    hold_s: float = HOLD_S
    max_s: float | None = None
    retry: LostJobPolicy | None = None
    to_be_refused: bool = False


class Crowd:
    def __init__(
        self,
        door: str,
        scenario: str,
        *,
        group: asyncio.TaskGroup,
        driver: Driver,
        session: aiohttp.ClientSession,
        timeline: Timeline,
        listener: Listener,
    ) -> None:
        self._door = door
        self._scenario = scenario
        self._group = group
        self._driver = driver
        self._session = session
        self._timeline = timeline
        self._listener = listener
        self._tasks: list[asyncio.Task[None]] = []
        self.callers: list[Caller] = []

    def browse(self, name: str, job: PageJob, ask: Ask | None = None) -> Caller:
        """Playwright: connect, open the job's page, read its title, disconnect."""

        async def visit(browser: "Browser", _caller: Caller) -> None:
            page = await _new_page(browser)
            await page.goto(job.url, wait_until="load", timeout=PAGE_LIMIT_S * 1000)
            if await page.title() != job.id:
                raise ValueError(f"the page of job {job.id} has another job's title")

        return self._playwright(name, visit, ask)

    def sit(self, name: str, until: asyncio.Event, ask: Ask | None = None) -> Caller:
        """Playwright: connect, say nothing until ``until``, then use a page to see whether the browser lives."""

        async def idle(browser: "Browser", _caller: Caller) -> None:
            gone = asyncio.Event()
            browser.on("disconnected", lambda _browser: gone.set())
            await _first(until, gone)
            if gone.is_set():
                raise JobLost("the idle browser was lost", reason="disconnected")
            page = await _new_page(browser)
            if await page.evaluate("6 * 7") != 42:
                raise ValueError("the browser does not reckon")

        return self._playwright(name, idle, ask)

    def render(self, name: str, job: PageJob, ask: Ask | None = None) -> Caller:
        """POST /render of the job's page as text. Its session is seen only afterwards, by the answer's headers."""

        async def attempt(caller: Caller, asked: Ask) -> None:
            answer = await render(
                self._door,
                job.url,
                options={"format": "text", "wait_until": "load"},
                timeout_s=PAGE_LIMIT_S,
                hold_s=asked.hold_s,
                max_s=asked.max_s,
                label=caller.label,
                session=self._session,
            )
            caller.told_of(pod=answer.pod, lease=answer.lease, waited_ms=answer.waited_ms, dials=answer.dials)
            if job.id not in answer.text:
                raise ValueError(f"the rendered page is not that of job {job.id}")

        return self._start(name, "render", attempt, ask)

    def raw(
        self,
        name: str,
        *,
        length_s: float = 0.0,
        until: asyncio.Event | None = None,
        command: bool = True,
        ask: Ask | None = None,
    ) -> Caller:
        """A hand-made WebSocket: upgrade, one CDP command (unless not), stay for ``length_s`` or till ``until``."""

        async def attempt(caller: Caller, asked: Ask) -> None:
            raw = await RawCaller.reach(self._door)
            caller.may_leave(raw.leave)
            try:
                lease_options = LeaseOptions(hold_s=asked.hold_s, max_s=asked.max_s, label=caller.label)
                # The door's own limits come first: this one only keeps a broken door from hanging the harness.
                async with asyncio.timeout(asked.hold_s + PAGE_LIMIT_S):
                    grant = await raw.ask(self._door, lease_options)
                caller.granted(pod=grant.pod, lease=grant.lease, waited_ms=grant.waited_ms, dials=grant.dials)
                if command:
                    await raw.command("Browser.getVersion")
                await _stay(raw, length_s, until)
            finally:
                raw.leave()

        return self._start(name, "raw", attempt, ask)

    def take(self, name: str, *, length_s: float = 0.0, ask: Ask | None = None) -> Caller:
        """POST /leases over a plain socket, keep the lease unused for ``length_s``, DELETE it."""

        async def attempt(caller: Caller, asked: Ask) -> None:
            raw = await RawCaller.reach(self._door)
            caller.may_leave(raw.leave)
            try:
                lease_options = LeaseOptions(hold_s=asked.hold_s, max_s=asked.max_s, label=caller.label)
                async with asyncio.timeout(asked.hold_s + PAGE_LIMIT_S):
                    grant = await raw.take(self._door, lease_options)
                caller.granted(pod=grant.pod, lease=grant.lease)
                await asyncio.sleep(length_s)
                await raw.give_back(self._door, lease_options, grant.lease)
            finally:
                raw.leave()

        return self._start(name, "raw", attempt, ask)

    async def settle(self, within_s: float, callers: list[Caller] | None = None) -> None:
        """Wait until these callers (all, by default) have ended; who has not stays UNFINISHED in its fate."""
        waited = self.callers if callers is None else callers
        try:
            async with asyncio.timeout(within_s):
                for caller in waited:
                    await caller.ended.wait()
        except TimeoutError:
            late = [caller.name for caller in waited if not caller.ended.is_set()]
            self._timeline.add(
                "note", f"{len(late)} callers have not ended within {within_s:g} s", callers=late
            )

    def stop(self) -> None:
        """Cancel all that still runs; the task group waits for it."""
        for task in self._tasks:
            task.cancel()

    def fates(self) -> list[Fate]:
        return [caller.fate() for caller in self.callers]

    def _playwright(
        self, name: str, work: Callable[["Browser", Caller], Awaitable[None]], ask: Ask | None
    ) -> Caller:
        async def attempt(caller: Caller, asked: Ask) -> None:
            block = connect(
                self._door,
                hold_s=asked.hold_s,
                max_s=asked.max_s,
                label=caller.label,
                playwright=await self._driver.started(),
            )
            async with block as browser:
                caller.granted()
                await work(browser, caller)

        return self._start(name, "playwright", attempt, ask)

    def _start(
        self, name: str, kind: str, attempt: Callable[[Caller, Ask], Awaitable[None]], ask: Ask | None
    ) -> Caller:
        caller = Caller(name, kind, f"{self._scenario}/{name}", self._timeline.now_ms, self._tell)
        caller.to_be_refused = ask is not None and ask.to_be_refused
        self.callers.append(caller)
        task = self._group.create_task(self._run(caller, attempt, ask or Ask()), name=caller.label)
        self._tasks.append(task)
        if kind == "render":
            caller.may_leave(lambda _how: task.cancel())
        return caller

    async def _run(self, caller: Caller, attempt: Callable[[Caller, Ask], Awaitable[None]], ask: Ask) -> None:
        async def once() -> None:
            caller.arrive()
            await attempt(caller, ask)

        def again(error: FarmError, _failures: int, _delay_s: float) -> None:
            caller.saw(error)
            caller.back_off()

        try:
            await run_job(once, policy=ask.retry or ONCE, on_retry=again)
        except asyncio.CancelledError:
            caller.end(Outcome.LEFT if caller.leaving else Outcome.UNFINISHED)
            if not caller.leaving:
                raise
        except Exception as error:
            caller.end(_outcome(caller, error))
        else:
            caller.end(Outcome.LEFT if caller.leaving else Outcome.DONE)

    def _tell(self, caller: Caller) -> None:
        self._listener.caller(caller.fate())


async def _new_page(browser: "Browser") -> "Page":
    """Playwright gives it no limit, and waits for ever when the browser dies meanwhile (seen on a starved machine)."""
    return await asyncio.wait_for(browser.contexts[0].new_page(), PAGE_LIMIT_S)


def _outcome(caller: Caller, error: Exception) -> Outcome:
    if caller.leaving:
        return Outcome.LEFT
    caller.saw(error)
    if isinstance(error, Refused):
        return Outcome.REFUSED
    return Outcome.LOST if isinstance(error, JobLost | DoorUnreachable) else Outcome.FAILED


async def _stay(raw: RawCaller, length_s: float, until: asyncio.Event | None) -> None:
    async with asyncio.TaskGroup() as group:
        broken = group.create_task(raw.broken())
        over = group.create_task(until.wait() if until is not None else asyncio.sleep(length_s))
        done, _ = await asyncio.wait({broken, over}, return_when=asyncio.FIRST_COMPLETED)
        broken.cancel()
        over.cancel()
    if over not in done:
        raise JobLost("the session was ended from the other side", reason="closed")


async def _first(*events: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
