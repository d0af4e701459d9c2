"""frozen-pod: a pod stops running without ending, and so does a Chrome in use; only the session on that Chrome is lost.

What is stopped (SIGSTOP) still has its sockets: the kernel takes connections that nobody answers, so no refused dial
tells of it. The free pod thaws at the end and is leased again; the Chrome is ended by its own agent.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire.reasons import End

from farmctl.scenarios import checks, proofs, witnesses
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome, struck
from farmctl.scenarios.stage import Stage

CLAIM = "A pod that freezes costs no caller an error, and a Chrome that freezes in a session costs that session alone."
# The agent gives up a Chrome that is silent for some seconds; a starved machine adds its own.
NOTICED_S = 15.0


@dataclass(frozen=True, slots=True)
class Evidence:
    newcomers: Sequence[Fate]  # came while a free pod was frozen
    timeouts: int  # dials that the frozen pod did not answer
    victim: Fate  # sat on the Chrome that froze
    noticed_s: float
    end: str  # how the proxy's log says the victim's lease ended
    others: Sequence[Fate]  # sat beside it
    last: Sequence[Fate]  # as many as there are pods, after the thaw


def judge(evidence: Evidence) -> list[Check]:
    return [
        checks.at_least("dials that the frozen pod did not answer", 1, evidence.timeouts),
        checks.none("callers that came meanwhile and saw an error", struck(evidence.newcomers)),
        checks.equal("the end of the caller whose Chrome froze", Outcome.LOST, evidence.victim.outcome),
        checks.at_most("seconds until it knew", NOTICED_S, evidence.noticed_s),
        checks.equal("end of its lease", End.BROWSER_DIED, evidence.end),
        checks.none("others that saw an error", struck(evidence.others)),
        checks.none("callers that saw an error after the thaw", struck(evidence.last)),
    ]


async def run(stage: Stage) -> None:
    rise = asyncio.Event()
    sitting = [stage.crowd.sit(f"idle-{number}", rise) for number in range(1, 3)]
    await stage.in_session(sitting)
    await stage.leased(2)
    free = next(pod.name for pod in (await stage.admin.pool()).pods if pod.state == "free")
    stage.fault(f"freezing {free}, which is free")
    await stage.testbed.freeze(free)
    newcomers, timeouts = await proofs.silent(stage, free, "frozen")

    victim = sitting[0]
    pod = (await stage.admin.pool()).pod_of(victim.label)
    if not pod:
        stage.not_staged(f"the proxy shows no lease of {victim.label}")
    at = stage.fault(f"freezing Chrome in {pod} under the silent caller {victim.name}")
    await stage.testbed.freeze(pod, what="chrome")
    await stage.crowd.settle(90, [victim])
    noticed_s = (victim.ended_ms() - at) / 1000 if victim.ended.is_set() else float("inf")
    rise.set()
    await stage.crowd.settle(60, sitting)

    stage.note(f"thawing {free}")
    await stage.testbed.thaw(free)
    await stage.free(4)
    last = [stage.crowd.browse(f"last-{n}", stage.pages.job(f"last-{n}")) for n in range(1, 5)]
    await stage.crowd.settle(90, last)
    await stage.quiet()
    ends = {
        told.get("label"): told.get("end") for told in witnesses.events(await stage.proxies(), "lease-ended")
    }
    stage.numbers |= {"seconds until the caller of the frozen Chrome knew": noticed_s}
    stage.judge(
        judge(
            Evidence(
                newcomers=[caller.fate() for caller in newcomers],
                timeouts=timeouts,
                victim=victim.fate(),
                noticed_s=noticed_s,
                end=str(ends.get(victim.label, "")),
                others=[caller.fate() for caller in sitting if caller is not victim],
                last=[caller.fate() for caller in last],
            )
        )
    )


SCENARIO = Scenario("frozen-pod", CLAIM, ("freeze", "thaw"), run, limit_s=300.0)
