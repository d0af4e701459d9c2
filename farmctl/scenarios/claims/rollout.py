"""rollout: all pods are leased and callers are held when new pods are rolled out, and nobody sees an error.

A leased pod counts as unavailable, so the Deployment's controller sees a farm in full use as one that is down: it may
stop halfway or take all at once. What is rolled out is an annotation; the way is that of `farmctl up`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise

import aiohttp
from farmwire.reasons import End

from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = (
    "New pods are rolled out through a farm in full use while it goes on granting; no session breaks and no caller "
    "sees an error."
)
PODS, SEATS = 4, 8
SESSION_S = 4.0
ROLLED_S = 150.0
# Fewer pods serve meanwhile, and each session ends with a new Chrome; a farm that stops granting waits much longer.
LONGEST_WITHOUT_GRANT_S = 15.0


@dataclass(frozen=True, slots=True)
class Evidence:
    fates: Sequence[Fate]
    through: Fate  # in one session from before the rollout until after it
    broken: Sequence[str]  # leases that ended otherwise than by their caller, in the proxy's words
    old_left: Sequence[str]
    pods: int
    grants: int  # while the rollout went on
    longest_without_grant_s: float
    busy_told_to_go: int  # pods that were leased when they were told to go
    least_taking: int  # pods that took callers, at the least


def judge(evidence: Evidence) -> list[Check]:
    done = [fate for fate in evidence.fates if fate.outcome == Outcome.DONE]
    undisturbed = evidence.through.outcome == Outcome.DONE and not evidence.through.errors
    return [
        checks.equal("callers done", len(evidence.fates), len(done)),
        checks.none("callers that saw an error", [fate for fate in evidence.fates if fate.errors]),
        checks.none("leases that their caller did not end", evidence.broken),
        checks.equal("the session that ran through it all was undisturbed", True, undisturbed),
        checks.none("old pods at the end", evidence.old_left),
        checks.equal("pods at the end", PODS, evidence.pods),
        checks.at_least("grants while the rollout went on", PODS, evidence.grants),
        checks.at_most(
            "seconds without a grant, at the longest",
            LONGEST_WITHOUT_GRANT_S,
            evidence.longest_without_grant_s,
        ),
        checks.at_least("pods told to go while leased", 1, evidence.busy_told_to_go),
        # A quarter is told to go at a time; the rest of the margin is the slices' lag.
        checks.at_least("pods that took callers, at the least", PODS // 2, evidence.least_taking),
    ]


@dataclass(slots=True)
class Watched:
    """What was seen while the rollout went on."""

    old: frozenset[str]  # UIDs
    busy_told_to_go: set[str] = field(default_factory=set)
    least_taking: int = PODS  # pods that take callers: in service and not told to go


async def run(stage: Stage) -> None:
    stop, rise = asyncio.Event(), asyncio.Event()
    watched = Watched(frozenset(pod.uid for pod in await stage.testbed.pods()))
    through = stage.crowd.sit("through", rise)
    await stage.in_session([through])
    async with asyncio.TaskGroup() as group:
        for seat in range(1, SEATS + 1):
            group.create_task(_come_again(stage, seat, stop))
        await stage.leased(PODS)
        pool = await stage.held(SEATS + 1 - PODS)
        from_ms = stage.fault("a new template for all pods", leased=len(pool.leases), held=len(pool.held))
        rolling = group.create_task(stage.testbed.roll_out())

        async def rolled() -> bool:
            await _look(stage, watched)
            return rolling.done()

        await stage.until("only new pods take callers", rolled, ROLLED_S)
        to_ms = stage.timeline.now_ms()
        stage.proof(f"{len(watched.busy_told_to_go)} pods were told to go while they were leased")
        stop.set()
        rise.set()
        await stage.crowd.settle(60)
    await stage.until("the old pods have gone", lambda: _gone(stage, watched.old), 60)
    await stage.quiet()
    grants = sorted(grant.at_ms for caller in stage.crowd.callers for grant in caller.grants)
    during = [at for at in grants if from_ms <= at <= to_ms]
    longest_s = max(b - a for a, b in pairwise([from_ms, *during, to_ms])) / 1000
    stage.numbers |= {
        "seconds until only new pods took callers": (to_ms - from_ms) / 1000,
        "seconds without a grant, at the longest": longest_s,
        "pods that took callers, at the least": watched.least_taking,
    }
    now = await stage.testbed.pods()
    ended = witnesses.events(await stage.proxies(), "lease-ended")
    stage.judge(
        judge(
            Evidence(
                fates=stage.crowd.fates(),
                through=through.fate(),
                broken=[f"{told.get('label')}: {told['end']}" for told in ended if told["end"] != End.DONE],
                old_left=[pod.name for pod in now if pod.uid in watched.old],
                pods=len(now),
                grants=len(during),
                longest_without_grant_s=longest_s,
                busy_told_to_go=len(watched.busy_told_to_go),
                least_taking=watched.least_taking,
            )
        )
    )


async def _come_again(stage: Stage, seat: int, stop: asyncio.Event) -> None:
    """One after another, a caller takes this seat until ``stop``, or until one saw an error: the claim is broken."""
    for visit in count(1):
        name = f"seat-{seat}-{visit}"
        if seat % 4 == 0:
            caller = stage.crowd.browse(name, stage.pages.job(f"rollout-{name}", length_s=SESSION_S))
        else:
            caller = stage.crowd.raw(name, length_s=SESSION_S)
        await caller.ended.wait()
        if stop.is_set() or caller.errors:
            return


async def _look(stage: Stage, watched: Watched) -> None:
    try:
        pods = (await stage.admin.pool()).pods
    except (aiohttp.ClientError, OSError):
        return
    watched.busy_told_to_go |= {pod.uid for pod in pods if pod.terminating and pod.lease}
    taking = [pod for pod in pods if not pod.terminating and pod.state not in ("unready", "set-aside")]
    watched.least_taking = min(watched.least_taking, len(taking))


async def _gone(stage: Stage, old: frozenset[str]) -> bool:
    now = {pod.uid for pod in await stage.testbed.pods()}
    return len(now) == PODS and not now & old


SCENARIO = Scenario("rollout", CLAIM, ("roll_out",), run, limit_s=ROLLED_S + 180)
