"""The local testbed end to end, with stand-ins for agent and proxy: real processes, sockets and signals."""

from dataclasses import replace

from farmctl.testbeds.local import proctree


async def test_up_and_down_leave_nothing(up, settings, folder):
    async with up(settings) as farm:
        pods = await farm.testbed.pods()
        assert len(pods) == 2
        assert all(pod.ready and pod.phase == "Running" for pod in pods)
        assert proctree.carriers(settings.token)
    assert not proctree.carriers(settings.token)
    assert not folder.path.exists()
    assert not settings.work.exists()
