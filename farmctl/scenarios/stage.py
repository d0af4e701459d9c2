"""What a scenario has in hand: the testbed's verbs, callers, pages, the proxy's account, and ways to judge.

A wait that ends without its state is either a broken claim (``until``) or a fault that was not staged
(``arrange``): the scenario says which by choosing the verb.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import aiohttp

from farmctl.scenarios.admin import Admin, PoolStatus
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.crowds import Crowd
from farmctl.scenarios.pages import PageJob, Pages
from farmctl.scenarios.results import Check
from farmctl.scenarios.timeline import Listener, Timeline
from farmctl.testbeds.base import NotStaged, Pod, Testbed

T = TypeVar("T")
LOOK_EACH_S = 0.05  # how often a state that nobody announces is looked at


class ClaimBroken(Exception):
    """The farm did not do what the claim says; the check that says so is already recorded."""


class Stage:
    def __init__(
        self,
        testbed: Testbed,
        *,
        crowd: Crowd,
        pages: Pages,
        admin: Admin,
        timeline: Timeline,
        listener: Listener,
    ) -> None:
        self.testbed = testbed
        self.crowd = crowd
        self.pages = pages
        self.admin = admin
        self.timeline = timeline
        self.checks: list[Check] = []
        self.numbers: dict[str, float] = {}
        self._listener = listener

    def note(self, text: str, **data: Any) -> None:
        self.timeline.add("stage", text, **data)

    def fault(self, text: str, **data: Any) -> int:
        """Record that a fault is being made now; return when (ms)."""
        return self.timeline.add("fault", text, **data).at_ms

    def proof(self, text: str, **data: Any) -> None:
        """Record what shows that the fault really happened."""
        self.timeline.add("proof", text, **data)

    def not_staged(self, why: str) -> NoReturn:
        raise NotStaged(why)

    def judge(self, checks: Iterable[Check]) -> None:
        for check in checks:
            self.checks.append(check)
            verdict = "ok" if check.passed else "BROKEN"
            self.timeline.add("check", f"{verdict}: {check.name}: expected {check.expected}, got {check.got}")
            self._listener.checked(check)

    async def until(self, what: str, probe: Callable[[], Awaitable[T]], within_s: float) -> T:
        """Wait until ``probe`` gives something true, and return it; else the claim is broken."""
        try:
            return await self._wait(probe, within_s)
        except TimeoutError:
            self.judge([Check(what, f"within {within_s:g} s", "not seen", passed=False)])
            raise ClaimBroken(f"not seen within {within_s:g} s: {what}") from None

    async def arrange(self, what: str, probe: Callable[[], Awaitable[T]], within_s: float) -> T:
        """Wait until ``probe`` gives something true, and return it; else the stage could not be set."""
        try:
            return await self._wait(probe, within_s)
        except TimeoutError:
            raise NotStaged(f"not seen within {within_s:g} s: {what}") from None

    async def held(self, count: int, within_s: float = 15.0) -> PoolStatus:
        """Arrange that exactly ``count`` callers are held."""

        async def seen() -> PoolStatus | None:
            pool = await self.admin.pool()
            return pool if len(pool.held) == count else None

        return await self._seen(f"{count} callers held", seen, within_s)

    async def leased(self, count: int, within_s: float = 40.0) -> PoolStatus:
        """Arrange that exactly ``count`` leases run."""

        async def seen() -> PoolStatus | None:
            pool = await self.admin.pool()
            return pool if len(pool.leases) == count else None

        return await self._seen(f"{count} leases running", seen, within_s)

    async def free(self, count: int, within_s: float = 60.0) -> PoolStatus:
        """Arrange that exactly ``count`` pods are free."""

        async def seen() -> PoolStatus | None:
            pool = await self.admin.pool()
            return pool if pool.in_state("free") == count else None

        return await self._seen(f"{count} pods free", seen, within_s)

    async def quiet(self, within_s: float = 60.0) -> PoolStatus:
        """Arrange that nobody is held or leased and no pod recycles: then every lease's end is in the logs."""

        async def seen() -> PoolStatus | None:
            pool = await self.admin.pool()
            moving = pool.held or pool.leases or pool.in_state("dialling") or pool.in_state("recycling")
            return None if moving else pool

        return await self._seen("all leases over and pods recycled", seen, within_s)

    async def in_session(self, callers: Sequence[Caller], within_s: float = 40.0) -> None:
        """Arrange that each of these callers has a session."""

        async def all_are() -> bool:
            for caller in callers:
                if caller.ended.is_set() and not caller.in_session.is_set():
                    raise NotStaged(f"{caller.name} got no session: {'; '.join(caller.errors)}")
            return all(caller.in_session.is_set() for caller in callers)

        try:
            await self._wait(all_are, within_s)
        except TimeoutError:
            late = ", ".join(caller.name for caller in callers if not caller.in_session.is_set())
            raise NotStaged(
                f"not in a session within {within_s:g} s: {late}; {await self._what_the_proxy_says()}"
            ) from None

    async def _what_the_proxy_says(self) -> str:
        """Of who waits and who has what: a caller that is held is another fault than one that has a lease already."""
        try:
            pool = await self.admin.pool()
        except (aiohttp.ClientError, OSError):
            return "the proxy gives no account of itself"
        held = ", ".join(each.label for each in pool.held) or "nobody"
        leased = ", ".join(each.label for each in pool.leases) or "nobody"
        pods = ", ".join(f"{pod.name} {pod.state}" for pod in pool.pods) or "none"
        return f"held: {held}; leased: {leased}; pods: {pods}"

    async def underway(self, jobs: Sequence[PageJob], within_s: float = 40.0) -> None:
        """Arrange that the work of each of these jobs has begun: its browser has asked for it."""
        try:
            async with asyncio.timeout(within_s):
                for job in jobs:
                    await job.underway.wait()
        except TimeoutError:
            raise NotStaged(f"a job's work did not begin within {within_s:g} s") from None

    async def pod(self, name: str) -> Pod | None:
        return next((pod for pod in await self.testbed.pods() if pod.name == name), None)

    async def agents(self) -> Mapping[str, Sequence[str]]:
        """Return the agents' log lines since the scenario began."""
        return await self.testbed.pod_logs_since(self.timeline.began)

    async def proxies(self) -> Sequence[str]:
        """Return the proxy's log lines since the scenario began."""
        return await self.testbed.proxy_log_since(self.timeline.began)

    async def dials(self, result: str) -> float:
        from farmwire import metrics

        return (await self.admin.metrics()).total(metrics.DIALS, result=result)

    async def _seen(self, what: str, probe: Callable[[], Awaitable[T | None]], within_s: float) -> T:
        found = await self.arrange(what, probe, within_s)
        assert found is not None
        return found

    async def _wait(self, probe: Callable[[], Awaitable[T]], within_s: float) -> T:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    found = await probe()
                except (aiohttp.ClientError, OSError):
                    pass  # a proxy that restarts gives no account of itself for a while
                else:
                    if found:
                        return found
                await asyncio.sleep(LOOK_EACH_S)
