"""pod-never-ready: new pods run but their probe never passes, and the farm goes on as if they were not there."""

from collections.abc import Sequence
from dataclasses import dataclass

from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "A pod that runs but is never ready gets no caller and keeps none waiting."
MORE = 2
CALLERS = 12


@dataclass(frozen=True, slots=True)
class Evidence:
    fates: Sequence[Fate]
    never_ready: Sequence[str]
    leases_by_pod: dict[str, int]
    states: Sequence[str]  # of these pods in /status, at the end


def judge(evidence: Evidence) -> list[Check]:
    done = [fate for fate in evidence.fates if fate.outcome == Outcome.DONE]
    wrong = [
        f"{pod}: {n} leases" for pod, n in evidence.leases_by_pod.items() if pod in evidence.never_ready and n
    ]
    return [
        checks.equal("callers done", len(evidence.fates), len(done)),
        checks.none("callers that saw an error", [fate for fate in evidence.fates if fate.errors]),
        checks.none("leases on a pod that was never ready", wrong),
        checks.equal(
            "their state by the proxy", ["unready"] * len(evidence.never_ready), list(evidence.states)
        ),
        checks.equal("leases on the others", len(evidence.fates), sum(evidence.leases_by_pod.values())),
    ]


async def run(stage: Stage) -> None:
    known = {pod.name for pod in await stage.testbed.pods()}
    stage.fault(f"{MORE} more pods, whose readiness probe never passes")
    await stage.testbed.make_pods_unready(None)
    await stage.testbed.scale(len(known) + MORE)

    async def running() -> list[str]:
        new = [pod for pod in await stage.testbed.pods() if pod.name not in known]
        if any(pod.ready for pod in new):
            stage.not_staged("a pod that should never be ready is")
        return [pod.name for pod in new if pod.phase == "Running"] if len(new) == MORE else []

    async def listed() -> bool:
        pool = await stage.admin.pool()
        return len(pool.pods) == len(known) + MORE and pool.in_state("unready") == MORE

    never_ready = await stage.arrange(f"{MORE} new pods run and are not ready", running, 30)
    await stage.arrange("the proxy knows them as unready", listed, 20)
    stage.proof(f"running, listed and not ready: {', '.join(never_ready)}")
    for number in range(1, CALLERS + 1):
        if number % 3 == 0:
            stage.crowd.browse(f"page-{number:02}", stage.pages.job(f"never-{number}", length_s=0.2))
        else:
            stage.crowd.raw(f"raw-{number:02}", length_s=0.3)
    await stage.crowd.settle(90)
    await stage.quiet()
    pods = (await stage.admin.pool()).pods
    tenures = witnesses.tenures(await stage.agents())
    leases = {pod.name: sum(tenure.pod == pod.name for tenure in tenures) for pod in pods}
    states = [pod.state for pod in pods if pod.name in never_ready]
    stage.judge(judge(Evidence(stage.crowd.fates(), never_ready, leases, states)))


SCENARIO = Scenario("pod-never-ready", CLAIM, ("make_pods_unready", "scale"), run)
