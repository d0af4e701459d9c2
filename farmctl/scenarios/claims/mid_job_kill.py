"""mid-job-kill: twenty callers on four pods, one busy pod is killed at once, and exactly one caller may notice.

The victim's page is held open by the harness until the kill is done, so the pod is busy beyond doubt; the
page server counts how often each job's work began, so a replay behind a caller's back would show.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farmctl.client import LostJobPolicy
from farmctl.scenarios import checks
from farmctl.scenarios.callers import Caller
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.crowds import Ask
from farmctl.scenarios.pages import PageJob
from farmctl.scenarios.proofs import pod_is_gone
from farmctl.scenarios.results import Check, Fate, Outcome, blast_radius
from farmctl.scenarios.stage import Stage

CLAIM = "A pod killed mid-job costs exactly the one job that ran on it; its retry succeeds and nobody else notices."
CALLERS = 20
RENDERS = 4  # of these, by POST /render
VICTIM = 6  # who is killed: late enough that the queue moves, early enough that many are still held
JOB_S = 0.4


@dataclass(frozen=True, slots=True)
class Evidence:
    victim: str
    victim_error_kinds: Sequence[str]
    fates: Sequence[Fate]
    began: Mapping[str, int]  # caller -> how often its job's work began
    held_at_kill: int
    error_after_ms: int | None  # from the kill's begin to the victim's error


def judge(evidence: Evidence) -> list[Check]:
    fates = evidence.fates
    struck = [fate.caller for fate in fates if fate.errors]
    done = [fate.caller for fate in fates if fate.outcome == Outcome.DONE]
    others = [fate for fate in fates if fate.caller != evidence.victim]
    quiet = [fate for fate in others if fate.outcome == Outcome.DONE and not fate.errors]
    replayed = [f"{name}: {times} times" for name, times in evidence.began.items() if times > 1]
    return [
        checks.equal("blast radius: callers that saw an error", 1, blast_radius(fates), struck),
        checks.equal("the caller that saw it", evidence.victim, ", ".join(struck) or "nobody"),
        checks.equal("what it saw", "JobLost", ", ".join(evidence.victim_error_kinds) or "nothing"),
        checks.equal("its retry succeeded", True, evidence.victim in done),
        checks.equal("others that finished without an error", len(fates) - 1, len(quiet)),
        checks.equal(
            "jobs whose work began more than once",
            [f"{evidence.victim}: 2 times"],
            replayed,
        ),
        checks.at_least("callers held at the moment of the kill", 1, evidence.held_at_kill),
        checks.at_most(
            "milliseconds from the SIGKILL to the victim's error",
            5000,
            evidence.error_after_ms if evidence.error_after_ms is not None else float("inf"),
        ),
    ]


async def run(stage: Stage) -> None:
    killed = asyncio.Event()
    jobs: dict[str, PageJob] = {}
    callers: dict[str, Caller] = {}
    policy = LostJobPolicy(attempts=3)
    for number in range(1, CALLERS + 1):
        kind = "render" if number > CALLERS - RENDERS else "page"
        name = f"{kind}-{number:02}"
        jobs[name] = stage.pages.job(name, length_s=JOB_S, until=killed if number == VICTIM else None)
        ask = Ask(retry=policy)
        make = stage.crowd.render if kind == "render" else stage.crowd.browse
        callers[name] = make(name, jobs[name], ask)
    victim = callers[f"page-{VICTIM:02}"]
    await stage.underway([jobs[victim.name]], within_s=60)

    pool = await stage.admin.pool()
    pod = pool.pod_of(victim.label)
    if not pod:
        stage.not_staged(f"the proxy shows no lease of {victim.label}")
    stage.fault(f"SIGKILL of {pod} while {victim.name} works on it", held=len(pool.held))
    before = await stage.pod(pod)
    at = round((await stage.testbed.kill(pod) - stage.timeline.began) * 1000)
    if before is None or not await pod_is_gone(stage, before):
        stage.not_staged(f"{pod} still runs after the kill")
    stage.proof(f"{pod} is gone: its processes and its listener")
    killed.set()
    await stage.crowd.settle(100)

    error_after = [when - at for when in victim.error_ms]
    stage.numbers |= {"ms to the victim's error": min(error_after, default=-1)}
    stage.judge(
        judge(
            Evidence(
                victim=victim.name,
                victim_error_kinds=victim.error_kinds,
                fates=stage.crowd.fates(),
                began={name: job.began for name, job in jobs.items()},
                held_at_kill=len(pool.held),
                error_after_ms=min(error_after, default=None),
            )
        )
    )


SCENARIO = Scenario("mid-job-kill", CLAIM, ("kill",), run)
