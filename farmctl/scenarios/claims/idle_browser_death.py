"""idle-browser-death: Chrome dies where nobody is talking to it, in a silent session and in a free pod.

The silent caller must learn of it without asking; the free pod must heal before it is handed out again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire.reasons import End

from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "A browser that dies in a silent session ends that session at once; one that dies in a free pod costs nobody anything."
NOTICED_S = 3.0


@dataclass(frozen=True, slots=True)
class Evidence:
    victim: Fate
    noticed_s: float
    end: str  # how the proxy's log says the victim's lease ended
    others: Sequence[Fate]  # sat beside the victim
    afterwards: Sequence[Fate]  # callers after Chrome died in a free pod
    restarts: int  # pods the kubelet restarted: healing is the agent's own task


def judge(evidence: Evidence) -> list[Check]:
    others = [fate for fate in evidence.others if fate.outcome == Outcome.DONE and not fate.errors]
    afterwards = [fate for fate in evidence.afterwards if fate.outcome == Outcome.DONE and not fate.errors]
    return [
        checks.equal("the silent caller's end", Outcome.LOST, evidence.victim.outcome),
        checks.at_most("seconds until it knew", NOTICED_S, evidence.noticed_s),
        checks.equal("end of its lease", End.BROWSER_DIED, evidence.end),
        checks.equal("others whose browser still worked", len(evidence.others), len(others)),
        checks.equal(
            "callers served after a free pod's Chrome died", len(evidence.afterwards), len(afterwards)
        ),
        checks.equal("pods restarted by the control plane", 0, evidence.restarts),
    ]


async def run(stage: Stage) -> None:
    rise = asyncio.Event()
    sitting = [stage.crowd.sit(f"idle-{number}", rise) for number in range(1, 5)]
    await stage.in_session(sitting)
    await stage.leased(4)
    restarts = sum(pod.restarts for pod in await stage.testbed.pods())
    victim = sitting[1]
    pod = (await stage.admin.pool()).pod_of(victim.label)
    if not pod:
        stage.not_staged(f"the proxy shows no lease of {victim.label}")
    at = stage.fault(f"killing Chrome in {pod} under the silent caller {victim.name}")
    await stage.testbed.kill_chrome(pod)
    stage.proof(f"Chrome of {pod} is gone")
    await stage.crowd.settle(30, [victim])
    noticed_s = (victim.ended_ms() - at) / 1000 if victim.ended.is_set() else float("inf")
    rise.set()
    await stage.crowd.settle(30, sitting)
    await stage.free(4)

    free = (await stage.admin.pool()).pods[0].name
    stage.fault(f"killing Chrome in {free}, which is free")
    await stage.testbed.kill_chrome(free)
    stage.proof(f"Chrome of {free} is gone")
    after = [stage.crowd.browse(f"after-{n}", stage.pages.job(f"after-{n}")) for n in range(1, 5)]
    await stage.crowd.settle(60, after)
    await stage.quiet()

    ends = {
        told.get("label"): told.get("end") for told in witnesses.events(await stage.proxies(), "lease-ended")
    }
    stage.numbers |= {"seconds until the silent caller knew": noticed_s}
    stage.judge(
        judge(
            Evidence(
                victim=victim.fate(),
                noticed_s=noticed_s,
                end=str(ends.get(victim.label, "")),
                others=[caller.fate() for caller in sitting if caller is not victim],
                afterwards=[caller.fate() for caller in after],
                restarts=sum(pod.restarts for pod in await stage.testbed.pods()) - restarts,
            )
        )
    )


SCENARIO = Scenario("idle-browser-death", CLAIM, ("kill_chrome",), run)
