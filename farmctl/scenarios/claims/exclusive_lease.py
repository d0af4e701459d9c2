"""exclusive-lease: two hundred callers on four pods whose probes lag by seconds, and never two on one pod.

The agents are the witnesses: each writes down when a lease began and ended. That the slices were wrong
meanwhile (ready while leased) is looked at all the time; without it the lag was not real.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.crowds import Ask
from farmctl.scenarios.results import Check, Outcome
from farmctl.scenarios.stage import Stage
from farmctl.scenarios.witnesses import Tenure

CLAIM = "With readiness that lags by seconds, no pod ever serves two callers at one time."
PLAYWRIGHTS, RAWS = 40, 160
PROBE_PERIOD_S, SLICE_DELAY_S = 3.0, 3.0
HOLD_S = 500.0  # twice what two busy cores take
LOOK_EACH_S = 0.2
ARRIVAL_S = 0.03  # between five callers and the next five, so that the kinds arrive mixed


@dataclass(frozen=True, slots=True)
class Evidence:
    tenures: Sequence[Tenure]
    seen_by_callers: Sequence[Tenure]  # the raw callers' own view, by the Farm-Pod they were told
    done: int
    struck: Sequence[str]  # callers that saw an error
    lying_looks: int  # times a pod was seen leased while its endpoint was ready


def judge(evidence: Evidence) -> list[Check]:
    callers = PLAYWRIGHTS + RAWS
    return [
        checks.none("two leases on one pod at one time, by the agents", witnesses.overlaps(evidence.tenures)),
        checks.none("the same, by what callers saw", witnesses.overlaps(evidence.seen_by_callers)),
        checks.equal("callers done", callers, evidence.done),
        checks.none("callers that saw an error", evidence.struck),
        checks.at_least("leases the agents wrote down", callers, len(evidence.tenures)),
    ]


async def run(stage: Stage) -> None:
    stage.fault(f"probes each {PROBE_PERIOD_S:g} s, slices {SLICE_DELAY_S:g} s late")
    await stage.testbed.set_probes(period_s=PROBE_PERIOD_S, slice_delay_s=SLICE_DELAY_S)
    lies = 0
    async with asyncio.TaskGroup() as group:
        settled = group.create_task(_all_come_and_go(stage))
        while not settled.done():
            lies += await _lies(stage)
            await asyncio.wait({settled}, timeout=LOOK_EACH_S)
    if not lies:
        stage.not_staged("no pod was ever seen ready while leased: the probes did not lag")
    stage.proof(f"{lies} times a leased pod was seen whose readiness still said free")
    await stage.quiet()

    callers = stage.crowd.callers
    tenures = witnesses.tenures(await stage.agents())
    busy = len(witnesses.events(await stage.agents(), "lease-refused"))
    stage.numbers |= {"leases": len(tenures), "agents' 409": busy, "looks that found a lie": lies}
    stage.judge(
        judge(
            Evidence(
                tenures=tenures,
                seen_by_callers=_seen(callers),
                done=sum(caller.outcome is Outcome.DONE for caller in callers),
                struck=[f"{caller.name}: {caller.errors}" for caller in callers if caller.errors],
                lying_looks=lies,
            )
        )
    )


async def _all_come_and_go(stage: Stage) -> None:
    ask = Ask(hold_s=HOLD_S)
    for number in range(1, PLAYWRIGHTS + RAWS + 1):
        # Every fifth is a Playwright, so that all kinds stand in line for the same pods. Half of the raw ones
        # use their browser; the others only hold a lease, which costs no new Chrome and makes for quick turns.
        if number % 5 == 0:
            stage.crowd.browse(f"page-{number:03}", stage.pages.job(f"exclusive-{number:03}"), ask)
            await asyncio.sleep(ARRIVAL_S)
        elif number % 2 == 0:
            # The first ones stay until the lag of their pods' readiness has surely been seen.
            length_s = PROBE_PERIOD_S / 2 if number <= 4 else 0.0
            stage.crowd.raw(f"raw-{number:03}", length_s=length_s, ask=ask)
        else:
            stage.crowd.take(f"lease-{number:03}", length_s=0.05, ask=ask)
    await stage.crowd.settle(HOLD_S)


async def _lies(stage: Stage) -> int:
    """Return how many pods are leased now although their endpoint was ready just before: nothing else told."""
    try:
        ready = {one.pod for one in await stage.testbed.readiness() if one.endpoint_ready}
        return sum(lease.pod in ready for lease in (await stage.admin.pool()).leases)
    except (aiohttp.ClientError, OSError):
        return 0  # a look that a loaded machine did not allow shows nothing


def _seen(callers: Sequence[Caller]) -> list[Tenure]:
    """A raw caller sees its 101 after the lease began and closes before it ends: it can only see too little."""
    return [
        Tenure(grant.pod, grant.lease, grant.at_ms / 1000, caller.ended_ms() / 1000, "seen")
        for caller in callers
        if caller.kind == "raw"
        for grant in caller.grants
    ]


SCENARIO = Scenario("exclusive-lease", CLAIM, ("set_probes",), run, limit_s=HOLD_S + 40)
