"""The engine on a fake farm: verdicts, restoring in every case, interruption, and what must always hold."""

import asyncio
import json

import pytest

from farmctl.errors import StageError
from farmctl.scenarios import checks, engine
from farmctl.scenarios.catalogue import Scenario
from farmctl.scenarios.drivers import Driver
from farmctl.scenarios.engine import Engine
from farmctl.scenarios.results import Outcome, Verdict
from farmctl.scenarios.timeline import Silent


def log_line(event, at, **fields):
    return json.dumps({"event": event, "t": at, **fields})


async def passes(stage):
    stage.judge([checks.equal("one", 1, 1)])


async def breaks(stage):
    stage.judge([checks.equal("one", 1, 2)])


async def unstaged(stage):
    stage.not_staged("the kill did not happen")


async def checks_nothing(stage):
    stage.note("nothing")


async def crashes(stage):
    raise KeyError("harness bug")


async def waits_in_vain(stage):
    async def never():
        return None

    await stage.until("the sky to fall", never, 0.05)


async def unstaged_in_a_group(stage):
    async with asyncio.TaskGroup():
        stage.not_staged("the kill did not happen")


async def broken_in_a_group(stage):
    async with asyncio.TaskGroup():
        await waits_in_vain(stage)


async def hangs(stage):
    await asyncio.Event().wait()


def scenario(run, **more):
    return Scenario(run.__name__, "a claim", more.pop("needs", ()), run, **more)


@pytest.mark.parametrize(
    ("run", "verdict", "exit_code", "reason"),
    [
        (passes, Verdict.PASSED, 0, ""),
        (breaks, Verdict.FAILED, 1, "one"),
        (waits_in_vain, Verdict.FAILED, 1, "the sky to fall"),
        (unstaged, Verdict.NOT_STAGED, 3, "the kill did not happen"),
        (unstaged_in_a_group, Verdict.NOT_STAGED, 3, "the kill did not happen"),
        (broken_in_a_group, Verdict.FAILED, 1, "the sky to fall"),
        (checks_nothing, Verdict.NOT_STAGED, 3, "checked nothing"),
        (crashes, Verdict.NOT_STAGED, 3, "harness itself failed"),
    ],
)
async def test_verdicts_and_exit_codes_and_the_farm_is_restored_each_time(
    testbed, run, verdict, exit_code, reason
):
    report = await Engine(testbed, Silent(), Driver()).run([scenario(run)])
    assert report.results[0].verdict is verdict
    assert report.exit_code == exit_code
    assert reason in report.results[0].reason
    assert testbed.calls[-1] == "restore"


async def test_a_caller_that_gets_no_session_is_told_of_with_what_the_proxy_has(testbed, door, admin):
    door.holds = True
    admin.pool = admin.pool_with(free=4)

    async def waits(stage):
        late = stage.crowd.raw("late")
        admin.pool = admin.pool_with(free=3, held=["waits/late"], leases=["other/one"])
        await stage.in_session([late], within_s=0.3)

    report = await Engine(testbed, Silent(), Driver()).run([scenario(waits)])
    assert report.results[0].verdict is Verdict.NOT_STAGED
    said = report.results[0].reason
    assert "not in a session within 0.3 s: late; held: waits/late; leased: other/one" in said
    assert "p3 free, p4 leased" in said


async def test_a_scenario_over_its_limit_failed(testbed):
    report = await Engine(testbed, Silent(), Driver()).run([scenario(hangs, limit_s=0.05)])
    assert report.results[0].verdict is Verdict.FAILED
    assert "not over within" in report.results[0].reason


async def test_what_the_testbed_cannot_do_is_listed_and_never_passed(testbed):
    testbed.cannot = {"cut_off": "needs root"}
    report = await Engine(testbed, Silent(), Driver()).run(
        [scenario(passes, needs=("cut_off",)), scenario(passes)]
    )
    assert [result.verdict for result in report.results] == [Verdict.NOT_HERE, Verdict.PASSED]
    assert report.results[0].reason == "cut_off: needs root"
    assert report.exit_code == 0
    alone = await Engine(testbed, Silent(), Driver()).run([scenario(passes, needs=("cut_off",))])
    assert alone.exit_code == 3


async def test_pages_that_cannot_be_served_where_the_pods_look_are_a_stage_not_set(testbed):
    testbed.pages_host = "192.0.2.1"  # the gateway of nodes in a virtual machine: no address of this one
    report = await Engine(testbed, Silent(), Driver()).run([scenario(passes), scenario(breaks)])
    assert [result.verdict for result in report.results] == [Verdict.NOT_STAGED] * 2
    assert report.exit_code == 3
    assert "192.0.2.1" in report.results[0].reason
    assert "--testbed local" in report.results[0].reason
    assert testbed.calls == []  # nothing was broken


async def test_interrupted_restores_the_farm_and_runs_nothing_more(testbed):
    reached = asyncio.Event()

    async def long(stage):
        stage.crowd.raw("sits", until=asyncio.Event())
        reached.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            Engine(testbed, Silent(), Driver()).run([scenario(long), scenario(passes)])
        )
        await reached.wait()
        running.cancel()
    report = running.result()
    assert [result.verdict for result in report.results] == [Verdict.INTERRUPTED]
    assert report.exit_code == 130
    assert testbed.calls == ["restore"]
    assert report.results[0].fates[0].outcome == Outcome.UNFINISHED


async def test_a_farm_that_is_not_whole_is_restored_first_and_else_not_staged(testbed, admin, monkeypatch):
    monkeypatch.setattr(engine, "WHOLE_S", 0.1)
    monkeypatch.setattr(engine, "QUIET_S", 0.1)
    admin.pool = admin.pool_with(free=3)
    report = await Engine(testbed, Silent(), Driver()).run([scenario(passes)])
    assert report.results[0].verdict is Verdict.NOT_STAGED
    assert "not 4 free pods" in report.results[0].reason
    assert testbed.calls[0] == "restore"


async def test_another_number_of_pods_is_scaled_to(testbed, monkeypatch):
    monkeypatch.setattr(engine, "WHOLE_S", 0.1)
    await Engine(testbed, Silent(), Driver()).run([scenario(passes, pods=1)])
    assert "scale 1" in testbed.calls


async def test_a_farm_that_cannot_be_restored_is_not_passed(testbed):
    testbed.restore_fails = StageError("the supervisor is gone")
    report = await Engine(testbed, Silent(), Driver()).run([scenario(passes)])
    assert report.results[0].verdict is Verdict.NOT_STAGED
    assert "the supervisor is gone" in report.results[0].reason


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"held": ["x/left-over"]}, "callers still held afterwards"),
        ({"leases": ["x/leaked"]}, "leases still running afterwards"),
        ({"pods": [("lease-began", 1, "A"), ("lease-began", 2, "B")]}, "two leases on one pod"),
        ({"proxy": ["error"]}, "errors in the proxy's own log"),
    ],
)
async def test_what_must_always_hold_fails_a_scenario_whose_own_checks_pass(
    testbed, admin, monkeypatch, broken, told
):
    monkeypatch.setattr(engine, "QUIET_S", 0.1)

    async def leaves_something(stage):
        await passes(stage)
        admin.pool = admin.pool_with(held=broken.get("held", ()), leases=broken.get("leases", ()))
        testbed.pod_lines = {
            "p1": [log_line(event, at, lease=lease) for event, at, lease in broken.get("pods", [])]
        }
        testbed.proxy_lines = [log_line("crash", 1, level=level) for level in broken.get("proxy", [])]

    report = await Engine(testbed, Silent(), Driver()).run([scenario(leaves_something)])
    assert report.results[0].verdict is Verdict.FAILED
    assert told in report.results[0].reason
