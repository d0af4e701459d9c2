"""scale-from-queue: one pod, six callers that all stay, and the autoscaler's formula on the proxy's demand.

Demand counts the leased too: a farm scaled on the queue alone would stop growing as soon as pods are in use.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire import metrics

from farmctl.scenarios import checks
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage
from farmctl.testbeds.base import Scaling

CLAIM = "Held and leased callers are demand: the autoscaler brings a pod for each, and none sees an error."
CALLERS = 6
SCALING = Scaling(low=1, high=8, target=1.0, sync_s=1.0, scale_down_wait_s=300.0)


@dataclass(frozen=True, slots=True)
class Evidence:
    fates: Sequence[Fate]
    demand: float
    pods: int  # at the end, all callers in session
    most_pods: Sequence[str]  # names, of the look that saw most
    scaled_s: float


def judge(evidence: Evidence) -> list[Check]:
    done = [fate for fate in evidence.fates if fate.outcome == Outcome.DONE]
    return [
        checks.equal("demand while one pod serves and the rest is held", float(CALLERS), evidence.demand),
        checks.equal("pods when every caller has one", CALLERS, evidence.pods),
        checks.equal(
            "most pods ever seen (no overshoot)", CALLERS, len(evidence.most_pods), evidence.most_pods
        ),
        checks.equal("callers done", len(evidence.fates), len(done)),
        checks.none("callers that saw an error", [fate for fate in evidence.fates if fate.errors]),
    ]


async def run(stage: Stage) -> None:
    rise = asyncio.Event()
    stage.note("one pod, and no autoscaler yet")
    for number in range(1, CALLERS + 1):
        if number > 2:
            stage.crowd.raw(f"raw-{number}", until=rise)
        else:
            stage.crowd.sit(f"sits-{number}", rise)
    await stage.leased(1)
    await stage.held(CALLERS - 1)
    demand = (await stage.admin.metrics()).total(metrics.DEMAND, pool="default")
    at = stage.fault(f"{CALLERS - 1} callers held; the autoscaler begins", demand=demand)
    stage.proof(f"the proxy shows 1 lease and {CALLERS - 1} held")
    await stage.testbed.autoscale(SCALING)
    most: list[str] = []

    async def look() -> None:
        """The pods that are wanted: one of before that is still on its way out was not made by the autoscaler."""
        nonlocal most
        pods = [pod for pod in await stage.testbed.pods() if pod.phase in {"Pending", "Running"}]
        most = max(most, [f"{pod.name} {pod.phase} {pod.age_s:.0f} s" for pod in pods], key=len)

    async def all_leased() -> bool:
        await look()
        return len((await stage.admin.pool()).leases) == CALLERS

    await stage.until("every caller has a pod of its own", all_leased, 90)
    scaled_s = (stage.timeline.now_ms() - at) / 1000
    pods = len([pod for pod in await stage.testbed.pods() if pod.phase == "Running"])
    # Two more rounds of the autoscaler, in which demand is met, must not add a pod.
    await asyncio.sleep(2.5 * SCALING.sync_s)
    await look()
    rise.set()
    await stage.crowd.settle(40)
    stage.numbers |= {"seconds until all had a pod": scaled_s}
    stage.judge(judge(Evidence(stage.crowd.fates(), demand, pods, most, scaled_s)))


SCENARIO = Scenario("scale-from-queue", CLAIM, ("autoscale", "scale"), run, pods=1)
