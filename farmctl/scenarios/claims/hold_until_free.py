"""hold-until-free: no pod is free, callers are held, and one pod turning free serves them all in arrival order.

Only one of the four sitting callers leaves, so a single pod serves the whole queue and the agents' log of that
pod shows the order beyond doubt. Two more callers show the limits of holding.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from farmwire.reasons import Refusal

from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.crowds import Ask
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = "A caller that finds no free pod is held and served in arrival order as soon as one turns free, without an error."
HOLD_S = 2.0
QUEUE = ("raw", "page", "raw", "render", "page", "raw")


@dataclass(frozen=True, slots=True)
class Evidence:
    arrived: Sequence[str]
    served: Sequence[str]  # the same callers in the order in which the agents' leases began
    fates: Sequence[Fate]  # of the held
    impatient: Sequence[str]  # errors of the caller with hold=0
    timed_out: Sequence[str]  # errors of the caller with hold=HOLD_S
    timed_out_after_s: float
    turned_free_to_lease_s: Sequence[float]


def judge(evidence: Evidence) -> list[Check]:
    done = [fate for fate in evidence.fates if fate.outcome == Outcome.DONE]
    slow = max(evidence.turned_free_to_lease_s, default=float("inf"))
    return [
        checks.equal("held callers done", len(evidence.arrived), len(done)),
        checks.none("held callers that saw an error", [fate for fate in evidence.fates if fate.errors]),
        checks.equal("order served", " ".join(evidence.arrived), " ".join(evidence.served)),
        checks.equal("hold=0 is refused with", Refusal.NO_FREE_POD, _reason(evidence.impatient)),
        checks.equal(f"hold={HOLD_S:g} is refused with", Refusal.HOLD_TIMEOUT, _reason(evidence.timed_out)),
        checks.at_least("seconds until hold-timeout, at the least", HOLD_S - 0.1, evidence.timed_out_after_s),
        checks.at_most("seconds until hold-timeout, at the most", HOLD_S + 1, evidence.timed_out_after_s),
        checks.at_most("seconds from a pod's free to the held caller's lease, at most", 2, slow),
    ]


def _reason(errors: Sequence[str]) -> str:
    known = [reason for reason in Refusal if any(f"refused: {reason} " in error for error in errors)]
    return known[0] if known else ", ".join(errors) or "nothing"


async def run(stage: Stage) -> None:
    go, stay = asyncio.Event(), asyncio.Event()
    sitting = [stage.crowd.raw(f"sits-{n}", until=go if n == 1 else stay) for n in range(1, 5)]
    await stage.in_session(sitting)
    stage.fault("all pods are leased; callers arrive")
    held: list[Caller] = []
    for number, kind in enumerate(QUEUE, 1):
        held.append(_arrive(stage, kind, number))
        await stage.held(number)
    stage.proof(f"{len(held)} callers are held and no pod is free")

    impatient = stage.crowd.raw("hold-0", ask=Ask(hold_s=0, to_be_refused=True))
    began_ms = stage.timeline.now_ms()
    timed_out = stage.crowd.raw("hold-2", ask=Ask(hold_s=HOLD_S, to_be_refused=True))
    await stage.crowd.settle(HOLD_S + 10, [impatient, timed_out])
    stage.note("one sitting caller leaves")
    go.set()
    await stage.crowd.settle(90, held)
    stay.set()
    await stage.crowd.settle(20)
    await stage.quiet()

    served, gaps = await _served(stage, {caller.label: caller.name for caller in held})
    stage.numbers |= {"seconds free to lease, most": max(gaps, default=0.0)}
    stage.judge(
        judge(
            Evidence(
                arrived=[caller.name for caller in held],
                served=served,
                fates=[caller.fate() for caller in held],
                impatient=impatient.errors,
                timed_out=timed_out.errors,
                timed_out_after_s=(timed_out.ended_ms() - began_ms) / 1000,
                turned_free_to_lease_s=gaps,
            )
        )
    )


def _arrive(stage: Stage, kind: str, number: int) -> Caller:
    name = f"{kind}-{number}"
    if kind == "raw":
        return stage.crowd.raw(name)
    job = stage.pages.job(f"hold-{name}")
    return stage.crowd.browse(name, job) if kind == "page" else stage.crowd.render(name, job)


async def _served(stage: Stage, names: dict[str, str]) -> tuple[list[str], list[float]]:
    """Return the held callers in the order of the agents' leases, and seconds from pod free to lease."""
    ended = witnesses.events(await stage.proxies(), "lease-ended")
    labels = {str(told.get("lease")): str(told.get("label", "")) for told in ended}
    logs = await stage.agents()
    served: list[str] = []
    gaps: list[float] = []
    for began in witnesses.events(logs, "lease-began"):
        name = names.get(labels.get(str(began.get("lease")), ""))
        if name is None:
            continue
        served.append(name)
        free = [float(told["t"]) for told in witnesses.events({began["pod"]: logs[began["pod"]]}, "free")]
        gaps += [float(began["t"]) - max(at for at in free if at <= began["t"])] if free else []
    return served, gaps


SCENARIO = Scenario("hold-until-free", CLAIM, (), run)
