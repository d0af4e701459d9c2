"""The local testbed end to end, with stand-ins for agent and proxy: real processes, sockets and signals."""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from farmctl.errors import StageError
from farmctl.testbeds.base import NoFarm, NotStaged, Scaling, Setup
from farmctl.testbeds.local.processes import netcut, proctree


async def get(url):
    limit = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def tell(pod, path):
    with suppress(aiohttp.ClientError):
        return await get(f"http://{pod.address}{path}")


async def listed(farm):
    """Addresses that the slices call ready."""
    url = f"{farm.testbed.api}/apis/discovery.k8s.io/v1/namespaces/farm/endpointslices"
    _, text = await get(url)
    return {
        endpoint["addresses"][0]
        for one in json.loads(text)["items"]
        for endpoint in one["endpoints"]
        if endpoint["conditions"]["ready"]
    }


def ip(pod):
    return pod.address.rpartition(":")[0]


def processes(settings, pod):
    """Pids that the pod's agent started: those with its name in their environment."""
    mark = f"farm/{pod.name}/{pod.uid}".encode()
    return [pid for pid in proctree.carriers(settings.token) if mark in environ(pid)]


def environ(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


async def test_up_and_down_leave_nothing(up, settings, folder):
    async with up(settings) as farm:
        pods = await farm.testbed.pods()
        assert len(pods) == 2
        assert all(pod.ready and pod.phase == "Running" and pod.restarts == 0 for pod in pods)
        assert {pod.node for pod in pods} == {"node-a", "node-b"}
        assert await listed(farm) == {ip(pod) for pod in pods}
        assert (await farm.testbed.setup()) == settings.setup
        assert proctree.carriers(settings.token)
        assert folder.path.stat().st_mode & 0o777 == 0o700
    assert not proctree.carriers(settings.token)
    assert not folder.path.exists()
    assert not settings.work.exists()
    with pytest.raises(NoFarm):
        await farm.testbed.pods()


async def test_killed_pod_is_replaced_by_another(up, settings, until):
    async with up(settings) as farm:
        mark = time.time()
        victim, other = await farm.testbed.pods()
        assert processes(settings, victim)
        await farm.testbed.kill(victim.name)
        assert not processes(settings, victim)

        async def whole_again():
            pods = await farm.testbed.pods()
            return len(pods) == 2 and all(pod.ready for pod in pods) and pods

        pods = await until(whole_again)
        assert victim.uid not in {pod.uid for pod in pods}
        assert other.uid in {pod.uid for pod in pods}
        logs = await farm.testbed.pod_logs_since(mark - 60)
        assert {victim.name, *(pod.name for pod in pods)} == set(logs)
        assert json.loads(logs[victim.name][0])["event"] == "chrome-started"
        later = await farm.testbed.pod_logs_since(time.time() + 60)
        assert not any(later.values())


async def test_crashed_agent_restarts_in_its_pod_and_takes_its_chrome_along(up, settings, until):
    async with up(settings) as farm:
        pod, _ = await farm.testbed.pods()
        before = processes(settings, pod)
        await tell(pod, "/die")

        async def restarted():
            now = next(one for one in await farm.testbed.pods() if one.name == pod.name)
            return now.restarts == 1 and now.ready and now

        now = await until(restarted)
        assert (now.uid, now.address) == (pod.uid, pod.address)
        assert not set(proctree.alive(before))


async def test_dead_chrome_and_frozen_pod_are_seen_by_the_probe(up, settings, until):
    async with up(settings) as farm:
        chromeless, frozen = await farm.testbed.pods()
        await farm.testbed.kill_chrome(chromeless.name)
        with pytest.raises(NotStaged, match="no Chrome"):
            await farm.testbed.kill_chrome(chromeless.name)
        await farm.testbed.freeze(frozen.name)
        await until(lambda: _ready_names(farm, set()))
        await farm.testbed.thaw(frozen.name)
        await until(lambda: _ready_names(farm, {frozen.name}))
        await farm.testbed.freeze(frozen.name, what="chrome")
        assert any((proctree.stat(pid) or "   ")[1] == "T" for pid in processes(settings, frozen))
        await farm.testbed.kill(chromeless.name)  # the stand-in starts no second Chrome
        await farm.testbed.restore()
        assert not any((proctree.stat(pid) or "   ")[1] == "T" for pid in processes(settings, frozen))
        assert len(await farm.testbed.pods()) == 2


async def _ready_names(farm, names):
    return {pod.name for pod in await farm.testbed.pods() if pod.ready} == names


async def test_scaled_down_pod_drains_and_its_endpoint_is_not_ready(up, settings, until):
    env = {"FAKE_DRAIN_S": "1.0"}
    async with up(replace(settings, setup=replace(settings.setup, agent_env=env))) as farm:
        await farm.testbed.scale(4)
        await until(lambda: _count(farm, 4, 4))
        await farm.testbed.scale(1)
        await until(lambda: _count(farm, 4, 1))
        going = [pod for pod in await farm.testbed.pods() if pod.phase == "Terminating"]
        assert len(going) == 3
        assert not any(pod.ready for pod in going)
        assert all(processes(settings, pod) for pod in going)
        await until(lambda: _count(farm, 1, 1))
        assert len(await listed(farm)) == 1
        with pytest.raises(StageError, match="0 to 200"):
            await farm.testbed.scale(201)


async def _count(farm, pods, ready):
    now = await farm.testbed.pods()
    return len(now) == pods and sum(pod.ready for pod in now) == ready


async def test_grace_over_means_sigkill(up, settings, until):
    env = {"FAKE_DRAIN_S": "600"}
    async with up(replace(settings, setup=replace(settings.setup, agent_env=env))) as farm:
        victim, _ = await farm.testbed.pods()
        await farm.testbed.kill(victim.name, grace_s=0.5)
        assert processes(settings, victim)
        await until(lambda: not processes(settings, victim))
        lines = farm.folder.pod_logs.lines(victim.name)
        assert "draining" in [json.loads(line)["event"] for line in lines]


async def test_stale_endpoint_stands_until_restore(up, settings, until):
    async with up(settings) as farm:
        live = await listed(farm)
        one, two = await farm.testbed.add_stale_endpoint(), await farm.testbed.add_stale_endpoint()
        assert one != two
        assert await listed(farm) - live == {one.partition(":")[0], two.partition(":")[0]}
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(*one.split(":"))
        await farm.testbed.restore()
        assert await listed(farm) == live


async def test_late_slices_name_a_dead_pod_and_the_quarrel_is_measured(up, settings, until):
    async with up(settings) as farm:
        # pod and endpoint disagree
        await farm.testbed.set_probes(period_s=0.1, threshold=1, slice_delay_s=60)
        unready, dead = await farm.testbed.pods()
        await tell(unready, "/set?ready=0")

        async def differs():
            return [one for one in await farm.testbed.readiness() if one.differs_s > 0]

        quarrel = (await until(differs))[0]
        assert (quarrel.pod, quarrel.pod_ready, quarrel.endpoint_ready) == (unready.name, False, True)
        await farm.testbed.kill(dead.name)
        assert ip(dead) in await listed(farm)
        new = await until(lambda: _new_pod(farm, {unready.name, dead.name}))
        assert new.address != dead.address  # a listed address is not given again
        await tell(unready, "/set?ready=1")
        await farm.testbed.restore()
        assert ip(dead) not in await listed(farm)
        assert all(one.differs_s == 0 for one in await farm.testbed.readiness())


async def _new_pod(farm, known):
    return next((pod for pod in await farm.testbed.pods() if pod.name not in known), None)


async def test_new_pods_stay_unready_until_restore(up, settings, until):
    async with up(settings) as farm:
        await farm.testbed.make_pods_unready(None)
        await farm.testbed.scale(3)
        new = await until(lambda: _third(farm))
        await until(lambda: farm.folder.pod_logs.lines(new.name))
        assert not new.ready
        await farm.testbed.restore()
        await farm.testbed.scale(3)
        await until(lambda: _count(farm, 3, 3))


async def _third(farm):
    pods = await farm.testbed.pods()
    return len(pods) == 3 and min(pods, key=lambda pod: pod.age_s)


async def test_autoscaler_follows_the_demand(up, settings, until, tmp_path):
    demand = tmp_path / "demand"
    env = {"FARMPROXY_FAKE_DEMAND": str(demand)}
    async with up(replace(settings, setup=replace(settings.setup, proxy_env=env))) as farm:
        await farm.testbed.autoscale(Scaling(1, 5, sync_s=0.1, scale_down_wait_s=0.5))
        await until(lambda: "not-scaled" in farm.folder.logs.path("supervisor").read_text())
        assert len(await farm.testbed.pods()) == 2  # no metric, no scaling
        demand.write_text("4")
        await until(lambda: _count(farm, 4, 4))
        demand.write_text("1")
        await until(lambda: _count(farm, 1, 1))
        await farm.testbed.restore()
        assert len(await farm.testbed.pods()) == 2


async def test_scaling_is_turned_off_while_the_demand_is_asked_for(up, settings):
    env = {"FARMPROXY_FAKE_SLOW_S": "0.5"}
    async with up(replace(settings, setup=replace(settings.setup, proxy_env=env))) as farm:
        await farm.testbed.autoscale(Scaling(1, 5, sync_s=0.1, scale_down_wait_s=0.5))
        await asyncio.sleep(0.2)
        await farm.testbed.autoscale(None)
        await asyncio.sleep(1)
        assert len(await farm.testbed.pods()) == 2  # the supervisor is there to say so


@pytest.mark.parametrize("how", ["kill", "term"])
async def test_proxy_is_replaced(up, settings, how):
    async with up(settings) as farm:
        before = (await farm.testbed.state())["proxy"]
        await farm.testbed.restart_proxy(how=how)
        after = (await farm.testbed.state())["proxy"]
        assert after["pid"] != before["pid"]
        assert not proctree.alive([before["pid"]])
        assert (after["ready"], after["restarts"], after["starts"]) == (True, 0, 2)
        lines = await farm.testbed.proxy_log_since(0)
        assert [json.loads(line)["event"] for line in lines].count("door-open") == 2


async def test_proxy_settings_hold_until_restore(up, settings):
    async with up(settings) as farm:
        await farm.testbed.set_proxy_env({"FARMPROXY_MARK": "mine"})
        assert await get(f"{farm.testbed.admin}/readyz") == (200, "mine")
        await farm.testbed.restore()
        assert await get(f"{farm.testbed.admin}/readyz") == (200, "")


async def test_nothing_is_decided_while_the_api_server_is_away(up, settings, until):
    async with up(settings) as farm:
        await farm.testbed.stop_api()
        with pytest.raises(aiohttp.ClientError):
            await listed(farm)
        victim, _ = await farm.testbed.pods()
        await farm.testbed.kill(victim.name)
        await until(lambda: _count(farm, 1, 1))
        await farm.testbed.start_api()
        await until(lambda: _count(farm, 2, 2))
        await until(lambda: _listed_all(farm))


async def _listed_all(farm):
    return await listed(farm) == {ip(pod) for pod in await farm.testbed.pods()}


async def test_reclaimed_node_loses_its_pods_and_gets_no_new_ones(up, settings, until):
    async with up(settings) as farm:
        names = await farm.testbed.reclaim_node("node-a", notice_s=1.0)
        assert len(names) == 1
        await until(lambda: _count(farm, 2, 2))
        assert {pod.node for pod in await farm.testbed.pods()} == {"node-b"}
        with pytest.raises(StageError, match="no node 'mars'"):
            await farm.testbed.reclaim_node("mars", notice_s=1)
        await farm.testbed.restore()
        await farm.testbed.scale(3)
        await until(lambda: _count(farm, 3, 3))
        assert {pod.node for pod in await farm.testbed.pods()} == {"node-a", "node-b"}


@pytest.mark.skipif(bool(netcut.reason_against()), reason=netcut.reason_against() or "-")
async def test_packets_of_a_cut_off_pod_vanish(up, settings):
    async with up(settings) as farm:
        pod, other = await farm.testbed.pods()
        await farm.testbed.cut_off(pod.name)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection(*pod.address.split(":")), 0.5)
        assert (await get(f"http://{other.address}/readyz"))[0] == 200
        await farm.testbed.mend(pod.name)
        assert (await get(f"http://{pod.address}/readyz"))[0] == 200
        await farm.testbed.cut_off(pod.name)
    assert settings.token not in await netcut_rules()


async def netcut_rules():
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("nft", "list", "tables", stdout=pipe)
    return (await process.communicate())[0].decode()


async def test_unknown_pod_is_said(up, settings):
    async with up(settings) as farm:
        with pytest.raises(StageError, match="no pod 'nobody'"):
            await farm.testbed.kill("nobody")
        assert Setup(pods=2, probe_period_s=0.1) == await farm.testbed.setup()
