"""Runs scenarios one after another on one farm, and hands the farm back whole, whatever happened.

Before each scenario the farm must be whole; after it, also after Ctrl-C, every fault is undone and what must
always hold is looked at: nobody held, nothing leased, no pod twice leased, no error in the proxy's log.
"""

import asyncio
import platform
import time
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

import aiohttp

from farmctl import __version__
from farmctl.errors import StageError
from farmctl.scenarios import checks, pages, witnesses
from farmctl.scenarios.admin import Admin
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.crowds import Crowd
from farmctl.scenarios.drivers import Driver
from farmctl.scenarios.results import Check, Report, Result, Verdict, blast_radius
from farmctl.scenarios.stage import ClaimBroken, Stage
from farmctl.scenarios.timeline import Listener, Timeline
from farmctl.testbeds.base import NotStaged, Testbed

WHOLE_S = 60.0  # how long the farm may take to be whole before a scenario
QUIET_S = 20.0  # how long after one the last recycle may take


class Engine:
    """``run`` plays scenarios and returns the report; cancelling it interrupts, restores, and still returns."""

    def __init__(self, testbed: Testbed, listener: Listener, driver: Driver) -> None:
        self._testbed = testbed
        self._listener = listener
        self._driver = driver
        self._interrupted = False

    async def run(self, scenarios: Sequence[Scenario]) -> Report:
        began = time.time()
        report = Report(self._testbed.kind, f"{platform.system()} {platform.machine()}", __version__, began)
        connector = aiohttp.TCPConnector(limit=0)
        async with AsyncExitStack() as stack, aiohttp.ClientSession(connector=connector) as session:
            try:
                served = await stack.enter_async_context(pages.serve(self._testbed.pages_host))
            except NotStaged as error:
                for number, scenario in enumerate(scenarios, 1):
                    self._listener.began(scenario.name, scenario.claim, number, len(scenarios))
                    result = Result(scenario.name, scenario.claim, Verdict.NOT_STAGED, began=time.time())
                    result.reason = str(error)
                    report.results.append(result)
                    self._listener.ended(result)
                return report
            for number, scenario in enumerate(scenarios, 1):
                self._listener.began(scenario.name, scenario.claim, number, len(scenarios))
                result = await self._result(scenario, served, session)
                report.results.append(result)
                self._listener.ended(result)
                if self._interrupted:
                    break
        report.duration_s = round(time.time() - began, 3)
        return report

    async def _result(
        self, scenario: Scenario, served: pages.Pages, session: aiohttp.ClientSession
    ) -> Result:
        result = Result(scenario.name, scenario.claim, Verdict.PASSED, began=time.time())
        cannot = self._testbed.cannot
        if missing := [f"{verb}: {cannot[verb]}" for verb in scenario.needs if verb in cannot]:
            result.verdict, result.reason = Verdict.NOT_HERE, "; ".join(missing)
            return result
        timeline = Timeline(self._listener)
        admin = Admin(self._testbed.admin, session)
        try:
            await self._make_whole(scenario.pods, admin)
            await self._play(scenario, result, timeline, admin, served, session)
        except asyncio.CancelledError:
            self._interrupted = True
            _uncancel()
            result.verdict, result.reason = Verdict.INTERRUPTED, "interrupted; the farm was restored"
        except StageError as error:
            result.verdict, result.reason = Verdict.NOT_STAGED, str(error)
        await self._restore(result, timeline, admin)
        served.forget()
        result.timeline = timeline.moments
        result.duration_s = round(timeline.now_ms() / 1000, 3)
        return _settled(result)

    async def _play(
        self,
        scenario: Scenario,
        result: Result,
        timeline: Timeline,
        admin: Admin,
        served: pages.Pages,
        session: aiohttp.ClientSession,
    ) -> None:
        testbed, listener = self._testbed, self._listener
        async with asyncio.TaskGroup() as group:
            crowd = Crowd(
                testbed.door,
                scenario.name,
                group=group,
                driver=self._driver,
                session=session,
                timeline=timeline,
                listener=listener,
            )
            stage = Stage(
                testbed, crowd=crowd, pages=served, admin=admin, timeline=timeline, listener=listener
            )
            try:
                result.verdict, result.reason = await _judged(scenario, stage)
            finally:
                result.checks, result.numbers, result.fates = stage.checks, stage.numbers, crowd.fates()
                crowd.stop()

    async def _make_whole(self, pods: int, admin: Admin) -> None:
        setup = await self._testbed.setup()
        if await _whole(admin) != pods:
            await self._testbed.restore()
            if setup.pods != pods:
                await self._testbed.scale(pods)
        try:
            async with asyncio.timeout(WHOLE_S):
                while await _whole(admin) != pods:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise StageError(
                f"the farm has not {pods} free pods and nothing else after {WHOLE_S:g} s",
                hint="farmctl status, or farmctl down and farmctl up",
            ) from None

    async def _restore(self, result: Result, timeline: Timeline, admin: Admin) -> None:
        timeline.add("stage", "restoring the farm")
        try:
            await self._testbed.restore()
            result.invariants = await self._invariants(result, timeline, admin)
        except (StageError, aiohttp.ClientError, OSError) as error:
            result.reason = f"{result.reason}; the farm was not restored: {error}".removeprefix("; ")
            if result.verdict is Verdict.PASSED:
                result.verdict = Verdict.NOT_STAGED
        else:
            timeline.add("stage", "the farm is whole again")

    async def _invariants(self, result: Result, timeline: Timeline, admin: Admin) -> list[Check]:
        # Should quiet not come, the checks below say what is left.
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                while await _whole(admin) < 0:
                    await asyncio.sleep(0.1)
        pool = await admin.pool()
        tenures = witnesses.tenures(await self._testbed.pod_logs_since(timeline.began))
        proxy_log = await self._testbed.proxy_log_since(timeline.began)
        witnesses.name_pods(result.fates, result.name, proxy_log)
        loud = witnesses.faults_of_ours(proxy_log)
        return [
            checks.none("callers still held afterwards", [held.label for held in pool.held]),
            checks.none("leases still running afterwards", [lease.label for lease in pool.leases]),
            checks.none("two leases on one pod at one time (agents)", witnesses.overlaps(tenures)),
            checks.none("errors in the proxy's own log", loud),
        ]


def _settled(result: Result) -> Result:
    """Count the blast radius, and let a check that failed outweigh a scenario that came to its end."""
    result.blast_radius = blast_radius(result.fates)
    broken = [check.name for check in [*result.checks, *result.invariants] if not check.passed]
    if result.verdict is Verdict.PASSED and broken:
        result.verdict, result.reason = Verdict.FAILED, "; ".join(broken)
    elif result.verdict is Verdict.PASSED and not result.checks:
        result.verdict, result.reason = Verdict.NOT_STAGED, "the scenario checked nothing"
    return result


async def _judged(scenario: Scenario, stage: Stage) -> tuple[Verdict, str]:
    try:
        async with asyncio.timeout(scenario.limit_s):
            await scenario.run(stage)
    except Exception as error:
        return _verdict_of(_cause(error), scenario.limit_s)
    return Verdict.PASSED, ""


def _cause(error: Exception) -> Exception:
    """Return the first error inside the groups that a scenario's own task groups make."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _verdict_of(error: Exception, limit_s: float) -> tuple[Verdict, str]:
    if isinstance(error, ClaimBroken):
        return Verdict.FAILED, str(error)
    if isinstance(error, StageError):
        return Verdict.NOT_STAGED, str(error)
    if isinstance(error, TimeoutError):
        return Verdict.FAILED, f"not over within {limit_s:g} s"
    where = traceback.extract_tb(error.__traceback__)[-1]
    at = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
    return Verdict.NOT_STAGED, f"the harness itself failed at {at}: {type(error).__name__}: {error}"


async def _whole(admin: Admin) -> int:
    """Return how many pods there are when all are free and nobody is held or leased; else -1."""
    try:
        pool = await admin.pool()
    except (aiohttp.ClientError, OSError):
        return -1
    quiet = not pool.held and not pool.leases and pool.in_state("free") == len(pool.pods)
    return len(pool.pods) if quiet else -1


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
