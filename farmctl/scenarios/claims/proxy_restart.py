"""proxy-restart: the proxy is asked to stop while callers are leased and held, and later killed outright.

Asked, it finishes what it has. Killed, it costs the sessions and the held callers that went through it, and
nothing more: pods come back by themselves and none is leased twice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire.reasons import Refusal

from farmctl.client import LostJobPolicy
from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.crowds import Ask
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage
from farmctl.scenarios.witnesses import Tenure

CLAIM = (
    "A proxy asked to stop finishes the leased and the held; one that is killed costs only what went through it, "
    "and no pod is lost or leased twice."
)
LINGER_S = 1.0
# A caller that comes while no proxy stands may have to ask for as long as a restart takes.
PATIENT = LostJobPolicy(attempts=12, base_s=0.5, cap_s=4.0)


@dataclass(frozen=True, slots=True)
class Evidence:
    drained: Sequence[Fate]  # leased or held when SIGTERM came
    late: Fate  # came after the linger time, with a retry
    late_errors: Sequence[str]
    killed: Sequence[Fate]  # leased or held when SIGKILL came, with a retry
    tenures: Sequence[Tenure]


def judge(evidence: Evidence) -> list[Check]:
    finished = [fate for fate in evidence.drained if fate.outcome == Outcome.DONE and not fate.errors]
    struck = [fate.caller for fate in evidence.killed if fate.errors]
    again = [fate for fate in evidence.killed if fate.outcome == Outcome.DONE]
    told = [error for error in evidence.late_errors if f"refused: {Refusal.DRAINING} " in error]
    return [
        checks.equal("SIGTERM: leased and held callers that finished", len(evidence.drained), len(finished)),
        checks.at_least(
            "SIGTERM: times a new caller was told `draining`", 1, len(told), evidence.late_errors
        ),
        checks.equal("SIGTERM: that caller's retry", Outcome.DONE, evidence.late.outcome),
        checks.equal(
            "SIGKILL: callers through the proxy that saw it", len(evidence.killed), len(struck), struck
        ),
        checks.equal("SIGKILL: their retries that succeeded", len(evidence.killed), len(again)),
        checks.none("two leases on one pod at one time", witnesses.overlaps(evidence.tenures)),
    ]


async def run(stage: Stage) -> None:
    stage.note(f"a proxy that lingers for {LINGER_S:g} s")
    await stage.testbed.set_proxy_env({"FARMPROXY_LINGER_S": f"{LINGER_S:g}"})
    await stage.free(4)
    drained, late = await _asked_to_stop(stage)
    killed = await _killed(stage)
    await stage.quiet()
    stage.judge(
        judge(
            Evidence(
                drained=drained,
                late=late,
                late_errors=late.errors,
                killed=killed,
                tenures=witnesses.tenures(await stage.agents()),
            )
        )
    )


async def _asked_to_stop(stage: Stage) -> tuple[list[Fate], Fate]:
    rise = asyncio.Event()
    leased = [
        stage.crowd.sit("leased-1", rise),
        *(stage.crowd.raw(f"leased-{number}", until=rise) for number in range(2, 5)),
    ]
    await stage.in_session(leased)
    held = [stage.crowd.raw(f"held-{number}") for number in range(1, 6)]
    pool = await stage.held(len(held))
    stage.fault("SIGTERM to the proxy", leased=len(pool.leases), held=len(pool.held))
    async with asyncio.TaskGroup() as group:
        restart = group.create_task(stage.testbed.restart_proxy(how="term"))
        await stage.arrange("the proxy says that it drains", lambda: _drains(stage), 10)
        stage.proof("the proxy's /status says draining")
        await asyncio.sleep(LINGER_S + 0.5)  # the linger time is a time, not a state
        late = stage.crowd.browse("late", stage.pages.job("late"), Ask(retry=PATIENT))
        await stage.until("the late caller was refused", lambda: _refused(late.errors), 10)
        rise.set()
        await stage.crowd.settle(60, [*leased, *held])
        await restart
    await stage.crowd.settle(60, [late])
    return [caller.fate() for caller in [*leased, *held]], late.fate()


async def _killed(stage: Stage) -> list[Fate]:
    await stage.free(4)
    rise = asyncio.Event()
    ask = Ask(retry=PATIENT)
    leased = [
        stage.crowd.sit("killed-1", rise, ask),
        *(stage.crowd.raw(f"killed-{number}", until=rise, ask=ask) for number in range(2, 5)),
    ]
    await stage.in_session(leased)
    held = [stage.crowd.raw(f"killed-held-{number}", ask=ask) for number in range(1, 4)]
    await stage.held(len(held))
    callers = [*leased, *held]
    stage.fault("SIGKILL of the proxy", leased=len(leased), held=len(held))
    await stage.testbed.restart_proxy(how="kill")

    async def all_saw() -> bool:
        return all(caller.errors for caller in callers)

    await stage.until("every caller through the killed proxy saw it", all_saw, 10)
    stage.proof("every connection through the proxy broke; a new proxy is ready")
    rise.set()
    await stage.crowd.settle(90, callers)
    return [caller.fate() for caller in callers]


async def _drains(stage: Stage) -> bool:
    return (await stage.admin.status()).draining


async def _refused(errors: Sequence[str]) -> bool:
    return bool(errors)


SCENARIO = Scenario("proxy-restart", CLAIM, ("restart_proxy", "set_proxy_env"), run, limit_s=240)
