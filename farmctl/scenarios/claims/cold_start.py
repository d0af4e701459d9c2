"""cold-start: callers come to a farm of no pods at all, and each is served on its first try."""

from collections.abc import Sequence
from dataclasses import dataclass

from farmwire import metrics

from farmctl.scenarios import checks
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "Callers of an empty farm are held and counted as demand, and are served on their first try when pods come."
PODS = 2


@dataclass(frozen=True, slots=True)
class Evidence:
    fates: Sequence[Fate]
    demand: float  # farmproxy_demand with no pod there
    served_s: float  # from the scale-up to the last caller's end


def judge(evidence: Evidence) -> list[Check]:
    done = [fate for fate in evidence.fates if fate.outcome == Outcome.DONE]
    once = [fate for fate in evidence.fates if fate.attempts == 1]
    return [
        checks.equal("demand of the held, with no pod there", float(len(evidence.fates)), evidence.demand),
        checks.equal("callers done", len(evidence.fates), len(done)),
        checks.equal("of these on the first try", len(evidence.fates), len(once)),
        checks.none("callers that saw an error", [fate for fate in evidence.fates if fate.errors]),
    ]


async def run(stage: Stage) -> None:
    stage.fault("scaling to no pods at all")
    await stage.testbed.scale(0)

    async def empty() -> bool:
        return not await stage.testbed.pods() and not (await stage.admin.pool()).pods

    await stage.arrange("no pod is left and the proxy knows none", empty, 40)
    stage.proof("there is no pod, and the proxy knows of none")
    crowd, pages = stage.crowd, stage.pages
    callers = [
        crowd.raw("raw"),
        crowd.browse("page", pages.job("cold-page")),
        crowd.render("render", pages.job("cold-render")),
    ]
    await stage.held(len(callers))
    demand = (await stage.admin.metrics()).total(metrics.DEMAND, pool="default")
    at = stage.timeline.add("stage", f"scaling to {PODS} pods").at_ms
    await stage.testbed.scale(PODS)
    await crowd.settle(60, callers)
    served_s = (stage.timeline.now_ms() - at) / 1000
    stage.numbers |= {"seconds from scale-up to the last answer": served_s}
    stage.judge(judge(Evidence(crowd.fates(), demand, served_s)))


SCENARIO = Scenario("cold-start", CLAIM, ("scale",), run)
