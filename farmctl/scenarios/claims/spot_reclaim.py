"""spot-reclaim: a worker is taken back with short notice, and only the sessions that cannot end in time are lost.

Its pods are told to go and replaced elsewhere at once. One session on it ends within the notice; the others do not.
Then the machine is gone without a word, as one whose power is cut; later it comes back and takes pods again.
`FARMCTL_SPOT_NOTICE_S` sets the notice (clouds give 120 or 30 seconds).
"""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from farmctl.client import LostJobPolicy
from farmctl.scenarios import checks, witnesses
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.crowds import Ask
from farmctl.scenarios.results import Check, Fate, Outcome
from farmctl.scenarios.stage import Stage

CLAIM = (
    "A reclaimed worker costs exactly the sessions that ran on it and did not end within the notice; the pool heals "
    "meanwhile, and takes the worker back."
)
NOTICE_S = float(os.environ.get("FARMCTL_SPOT_NOTICE_S") or 15.0)
PODS, HELD, MORE = 6, 2, 2
# A machine that is gone says nothing: its silence is noticed after twice the proxy's keepalive of 15 s.
NOTICED_S = 45.0
HEALED_S = 60.0
BACK_S = 90.0
PATIENT = LostJobPolicy(attempts=3)


@dataclass(frozen=True, slots=True)
class Evidence:
    doomed: Sequence[Fate]  # in a session on the node when it was lost
    others: Sequence[Fate]
    cut_off: int  # leases on the node's pods that never ended, by the agents
    noticed_s: float  # from the loss to the last error
    healed_s: float  # from the notice until as many pods as before took callers elsewhere
    lost_left: Sequence[str]  # pods of the lost node that are still there at the end
    taken_back: Sequence[str]  # pods free on the node that came back


def judge(evidence: Evidence) -> list[Check]:
    doomed = [fate.caller for fate in evidence.doomed]
    struck = [fate.caller for fate in [*evidence.doomed, *evidence.others] if fate.errors]
    again = [fate for fate in evidence.doomed if fate.outcome == Outcome.DONE]
    quiet = [fate for fate in evidence.others if fate.outcome == Outcome.DONE and not fate.errors]
    return [
        checks.at_least("sessions that could not end within the notice", 1, len(doomed)),
        checks.equal("callers that saw an error", sorted(doomed), sorted(struck)),
        checks.equal("of these, whose retry succeeded", len(doomed), len(again)),
        checks.equal("all others: done without an error", len(evidence.others), len(quiet)),
        checks.equal("leases cut off on the lost pods, by the agents", len(doomed), evidence.cut_off),
        checks.at_most("seconds from the loss to the last error", NOTICED_S, evidence.noticed_s),
        checks.at_most("seconds from the notice to a whole pool elsewhere", HEALED_S, evidence.healed_s),
        checks.none("pods of the lost node left at the end", evidence.lost_left),
        checks.at_least("pods on the node that came back", 1, len(evidence.taken_back)),
    ]


@dataclass(frozen=True, slots=True)
class Staged:
    """Who sits where when the notice comes."""

    node: str
    on_it: Sequence[Caller]
    elsewhere: Sequence[Caller]
    held: Sequence[Caller]
    ends: dict[str, asyncio.Event]  # by caller: when its session may end


async def run(stage: Stage) -> None:
    staged = await _staged(stage)
    early, *doomed = staged.on_it
    notice_ms = stage.fault(
        f"{staged.node} is reclaimed with {NOTICE_S:g} s of notice", leased=len(staged.on_it)
    )
    lost = list(await stage.testbed.reclaim_node(staged.node, notice_s=NOTICE_S))
    staged.ends[early.name].set()
    await stage.until(
        "the held are served elsewhere, and the session that could end has",
        _ended(early, *staged.held),
        NOTICE_S + 30,
    )
    await stage.until("a whole pool elsewhere", lambda: _whole_elsewhere(stage, staged.node), HEALED_S)
    healed_s = (stage.timeline.now_ms() - notice_ms) / 1000

    async def gone() -> bool:
        return await stage.testbed.node_is_lost(staged.node)

    await stage.arrange(f"{staged.node} is lost", gone, NOTICE_S + 30)
    lost_ms = stage.timeline.now_ms()
    stage.proof(f"{staged.node} does not run any more, and {len(doomed)} sessions ran on it")

    async def all_saw() -> bool:
        return all(caller.errors for caller in doomed)

    await stage.until("each session that ran there is over for its caller", all_saw, NOTICED_S + 15)
    noticed_s = (max(caller.error_ms[0] for caller in doomed) - lost_ms) / 1000
    for end in staged.ends.values():
        end.set()
    await stage.crowd.settle(60)
    taken_back = await _back(stage, staged.node, lost)
    tenures = witnesses.tenures(await stage.agents())
    stage.numbers |= {
        "notice seconds": NOTICE_S,
        "seconds from the notice to a whole pool elsewhere": healed_s,
        "seconds from the loss to the last error": noticed_s,
    }
    stage.judge(
        judge(
            Evidence(
                doomed=[caller.fate() for caller in doomed],
                others=[caller.fate() for caller in stage.crowd.callers if caller not in doomed],
                cut_off=sum(each.pod in lost and each.end == "open" for each in tenures),
                noticed_s=noticed_s,
                healed_s=healed_s,
                lost_left=[pod.name for pod in await stage.testbed.pods() if pod.name in lost],
                taken_back=taken_back,
            )
        )
    )


async def _staged(stage: Stage) -> Staged:
    """A session on each pod, and callers held; the node with the most of them is the one to lose."""
    ends = {f"sits-{number}": asyncio.Event() for number in range(1, PODS + 1)}
    ask = Ask(retry=PATIENT)
    sitting = [
        stage.crowd.sit(name, end, ask) if number % 2 else stage.crowd.raw(name, until=end, ask=ask)
        for number, (name, end) in enumerate(ends.items(), 1)
    ]
    await stage.in_session(sitting)
    held = [stage.crowd.raw(f"held-{number}") for number in range(1, HELD + 1)]
    pool = await stage.held(HELD)
    nodes = {pod.name: pod.node for pod in await stage.testbed.pods()}
    placed = {caller.name: nodes.get(pool.pod_of(caller.label), "") for caller in sitting}
    node, most = Counter(placed.values()).most_common(1)[0]
    if not node or most < 2:
        stage.not_staged(f"no node has two leased pods: {placed}")
    on_it = [caller for caller in sitting if placed[caller.name] == node]
    return Staged(node, on_it, [caller for caller in sitting if caller not in on_it], held, ends)


def _ended(*callers: Caller) -> Callable[[], Awaitable[bool]]:
    async def all_have() -> bool:
        return all(caller.ended.is_set() for caller in callers)

    return all_have


async def _whole_elsewhere(stage: Stage, node: str) -> bool:
    """As many pods as there were stand on other nodes, in service by the proxy's word."""
    standing = {pod.uid for pod in await stage.testbed.pods() if pod.phase == "Running" and pod.node != node}
    serving = {
        pod.uid
        for pod in (await stage.admin.pool()).pods
        if not pod.terminating and pod.state not in ("unready", "set-aside")
    }
    return len(standing & serving) == PODS


async def _back(stage: Stage, node: str, lost: Sequence[str]) -> list[str]:
    """The node returns; the pods that are put on it then, free by the proxy's word."""
    stage.note(f"{node} comes back")
    await stage.testbed.return_nodes()

    async def cleared() -> bool:
        return not {pod.name for pod in await stage.testbed.pods()} & set(lost)

    await stage.until("the lost pods are cleared away", cleared, BACK_S)
    await stage.testbed.scale(PODS + MORE)

    async def taken() -> list[str]:
        pool = await stage.admin.pool()
        free = {pod.uid for pod in pool.pods if pod.state == "free"}
        found = [pod.name for pod in await stage.testbed.pods() if pod.node == node and pod.uid in free]
        return found if len(free) == PODS + MORE else []

    return await stage.until("the returned node has free pods", taken, BACK_S)


SCENARIO = Scenario(
    "spot-reclaim", CLAIM, ("reclaim_node", "return_nodes"), run, pods=PODS, limit_s=NOTICE_S + 300
)
