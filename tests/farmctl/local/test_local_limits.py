"""What the local testbed cannot do is said beforehand and refused when asked for all the same."""

import asyncio
from pathlib import Path

import pytest

from farmctl.scenarios.claims import rollout, spot_reclaim
from farmctl.testbeds.base import NotStaged, Pod
from farmctl.testbeds.local.state import StateFolder
from farmctl.testbeds.local.testbed import LocalTestbed

SETTINGS = {"namespace": "farm", "door": "127.0.0.1:1", "admin": "127.0.0.1:2", "setup": {}}
STATE = {"settings": SETTINGS, "api": ""}


@pytest.fixture
def testbed(tmp_path: Path):
    return LocalTestbed(StateFolder(tmp_path), STATE)


@pytest.mark.parametrize("scenario", [rollout.SCENARIO, spot_reclaim.SCENARIO])
def test_scenarios_about_deployments_and_machines_are_not_here(testbed, scenario):
    assert any(verb in testbed.cannot for verb in scenario.needs)


async def test_verbs_that_cannot_be_say_why(testbed):
    for asked in (testbed.roll_out(), testbed.return_nodes(), testbed.node_is_lost("spot-1")):
        with pytest.raises(NotStaged, match="here"):
            await asked


async def test_a_pod_listens_until_it_does_not(testbed):
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    pod = Pod("p", "u", f"{host}:{port}", "Running", ready=True, restarts=0, age_s=1.0)
    assert await testbed.listens(pod)
    server.close()
    await server.wait_closed()
    assert not await testbed.listens(pod)
