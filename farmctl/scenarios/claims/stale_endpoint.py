"""stale-endpoint: an EndpointSlice names a ready address where nothing listens, and callers must not notice.

The endpoint is made by hand under the Service's label, so the fault is certain; that it was dialled is read
from the proxy's own counters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire.reasons import DialResult

from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "A dead address in the EndpointSlices costs no caller an error: the dial fails and the caller keeps its place."
PAGES, RAWS, RENDERS = 4, 4, 2
FIRST_SET_ASIDE_S = 2.0


@dataclass(frozen=True, slots=True)
class Evidence:
    address: str
    fates: Sequence[Fate]
    refused_dials: int  # at the dead address: nothing else refuses here
    most_dials_of_a_caller: int
    faults: int  # as /status counts them for the dead endpoint
    over_s: float  # from the first dial that failed to the last caller's end


def judge(evidence: Evidence) -> list[Check]:
    done = [fate for fate in evidence.fates if fate.outcome == Outcome.DONE]
    # Set aside for 2, 4, 8, ... seconds: so many dials fit into the time, and no more.
    bound = 1 + math.floor(math.log2(evidence.over_s / FIRST_SET_ASIDE_S + 1)) if evidence.over_s > 0 else 1
    return [
        checks.equal("callers done", len(evidence.fates), len(done)),
        checks.none("callers that saw an error", [fate for fate in evidence.fates if fate.errors]),
        checks.at_least("dials of the caller that met the dead address", 2, evidence.most_dials_of_a_caller),
        checks.at_least("faults the proxy counts for the dead address", 1, evidence.faults),
        checks.at_most(
            "dials at the dead address (set aside, doubling)",
            bound,
            evidence.refused_dials,
            [f"{evidence.address}: {evidence.refused_dials} dials in {evidence.over_s:.1f} s"],
        ),
    ]


async def run(stage: Stage) -> None:
    before = await stage.dials(DialResult.REFUSED)
    stage.fault("adding a ready endpoint at an address where nothing listens")
    address = await stage.testbed.add_stale_endpoint()

    async def listed() -> bool:
        return any(pod.address == address for pod in (await stage.admin.pool()).pods)

    await stage.arrange(f"the proxy knows {address}", listed, 10)
    # More callers at once than there are live pods: one of them must be given the dead one.
    began_ms = stage.timeline.now_ms()
    crowd = stage.crowd
    for number in range(RAWS):
        crowd.raw(f"raw-{number + 1}", length_s=1.0)
    for number in range(PAGES):
        crowd.browse(f"page-{number + 1}", stage.pages.job(f"stale-{number + 1}", length_s=0.3))
    for number in range(RENDERS):
        crowd.render(f"render-{number + 1}", stage.pages.job(f"stale-render-{number + 1}"))

    async def dialled() -> bool:
        return await stage.dials(DialResult.REFUSED) > before

    await stage.arrange("the dead address was dialled", dialled, 20)
    stage.proof(f"{address} was dialled and refused the connection")
    await crowd.settle(90)
    over_s = (stage.timeline.now_ms() - began_ms) / 1000
    await stage.quiet()
    refused = round(await stage.dials(DialResult.REFUSED) - before)
    faults = max((pod.faults for pod in (await stage.admin.pool()).pods if pod.address == address), default=0)
    dials = [int(told.get("dials", 0)) for told in witnesses.events(await stage.proxies(), "lease-ended")]
    stage.numbers |= {"dials at the dead address": refused, "seconds": over_s}
    stage.judge(judge(Evidence(address, crowd.fates(), refused, max(dials, default=0), faults, over_s)))


SCENARIO = Scenario("stale-endpoint", CLAIM, ("add_stale_endpoint",), run)
