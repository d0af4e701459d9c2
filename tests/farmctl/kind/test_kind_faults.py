import asyncio
import copy

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged, Scaling
from farmctl.testbeds.kind.api import limits
from farmctl.testbeds.kind.api.objects import BROWSERS, PROXY, ApiAway
from farmctl.testbeds.kind.faults import autoscaling, fake_objects
from farmctl.testbeds.kind.faults.deployments import Deployments
from farmctl.testbeds.kind.faults.records import Faults, FaultsFile, container_of, undone

PROBE = {"httpGet": {"path": "/readyz", "port": "cdp"}, "periodSeconds": 1, "failureThreshold": 1}


def deployment(name, *, replicas=4, env=(), probe=PROBE):
    container = {"name": name, "env": list(env)}
    if probe is not None:
        container["readinessProbe"] = dict(probe)
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {"replicas": replicas},
    }


class FakeApi:
    """Holds Deployments, and makes at once as many pods as they want."""

    def __init__(self, *deployments):
        self.there = {each["metadata"]["name"]: each for each in deployments}
        self.patches = 0

    async def deployment(self, name):
        return copy.deepcopy(self.there.get(name))

    async def patch_deployment(self, name, body, _kind=""):
        self.patches += 1
        if isinstance(body, dict):
            self.there[name]["spec"].update(body["spec"])
            return
        container = container_of(self.there[name])
        for each in body:
            part = each["path"].rpartition("/")[2]
            if each["op"] == "remove":
                del container[part]
            else:
                container[part] = each["value"]

    async def pods(self, _selector=""):
        wanted = sum(each["spec"]["replicas"] for name, each in self.there.items() if name != PROXY)
        return [{"metadata": {"name": f"p{n}"}} for n in range(wanted)]


def made(api, tmp_path):
    return Deployments(api, None, FaultsFile(tmp_path))


async def test_settings_go_over_the_own_ones_and_come_back_after_a_crash(tmp_path):
    own = [
        {"name": "FARMPROXY_POOLS", "value": "default=browsers"},
        {"name": "FARMPROXY_LINGER_S", "value": "5"},
    ]
    api = FakeApi(deployment(PROXY, env=own, probe=None))
    assert await made(api, tmp_path).set_env(PROXY, {"FARMPROXY_LINGER_S": "1"})
    assert await made(api, tmp_path).set_env(
        PROXY, {"FARMPROXY_DRAIN_S": "9"}
    )  # over the own ones, not the last
    values = {each["name"]: each["value"] for each in container_of(api.there[PROXY])["env"]}
    assert values == {
        "FARMPROXY_POOLS": "default=browsers",
        "FARMPROXY_LINGER_S": "5",
        "FARMPROXY_DRAIN_S": "9",
    }
    assert not await made(api, tmp_path).set_env(PROXY, {"FARMPROXY_DRAIN_S": "9"})
    later = made(api, tmp_path)  # another process: only the record knows
    assert await later.put_back() == [PROXY]
    assert container_of(api.there[PROXY])["env"] == own
    assert await later.put_back() == []


@pytest.mark.parametrize(("asked_s", "period"), [(0.5, 1), (1.0, 1), (2.5, 3), (3.0, 3)])
async def test_probes_have_whole_seconds(tmp_path, asked_s, period):
    api = FakeApi(deployment(BROWSERS))
    assert await made(api, tmp_path).set_probe(asked_s, 1) is (period != 1)
    assert container_of(api.there[BROWSERS])["readinessProbe"] == {**PROBE, "periodSeconds": period}
    assert await made(api, tmp_path).put_back() == ([BROWSERS] if period != 1 else [])
    assert container_of(api.there[BROWSERS])["readinessProbe"] == PROBE


@pytest.mark.parametrize(
    ("there", "pods", "ordinary", "unready"),
    [(None, 6, 6, None), (0, 6, 4, 2), (2, 6, 4, 2), (2, 3, 3, 0), (0, 0, 0, 0)],
)
async def test_pods_beyond_those_there_are_never_ready_ones(tmp_path, there, pods, ordinary, unready):
    extra = [] if there is None else [deployment(fake_objects.UNREADY, replicas=there)]
    api = FakeApi(deployment(BROWSERS), *extra)
    await made(api, tmp_path).scale(pods)
    assert api.there[BROWSERS]["spec"]["replicas"] == ordinary
    if unready is not None:
        assert api.there[fake_objects.UNREADY]["spec"]["replicas"] == unready


async def test_a_missing_deployment_is_the_stages_fault(tmp_path):
    with pytest.raises(StageError, match="proxy is not there"):
        await made(FakeApi(), tmp_path).set_env(PROXY, {"A": "1"})


def test_the_record_outlives_what_wrote_it_and_garbage(tmp_path):
    file = FaultsFile(tmp_path)
    assert file.read() == Faults()
    file.tell("kill browsers-1")
    file.remember(deployment(PROXY, env=[{"name": "A", "value": "1"}], probe=None))
    file.remember(deployment(PROXY, env=[{"name": "A", "value": "changed"}], probe=None))
    kept = FaultsFile(tmp_path).read()
    assert kept.told == ["kill browsers-1"]
    assert kept.before == {PROXY: {"env": [{"name": "A", "value": "1"}], "readinessProbe": None}}
    (tmp_path / "faults.json").write_text("{")
    assert file.read() == Faults()
    file.clear()
    file.clear()


def test_what_a_fault_added_is_taken_away():
    changed = deployment(PROXY, env=[{"name": "A", "value": "1"}])
    assert undone(changed, {"env": None, "readinessProbe": PROBE}) == [
        {"op": "remove", "path": "/spec/template/spec/containers/0/env"}
    ]


async def test_a_wait_ends_with_what_it_waited_for_and_outlives_an_api_outage():
    answers = iter([ApiAway("away"), False, True])

    async def holds():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await limits.until(holds, "", 5)

    async def never():
        return False

    with pytest.raises(NotStaged, match=r"not within 0\.01 s: the moon is blue"):
        await limits.until(never, "the moon is blue", 0.01)

    async def refused():
        raise StageError("forbidden")

    with pytest.raises(StageError, match="forbidden"):
        await limits.until(refused, "", 5)


async def test_the_autoscaler_follows_demand_and_waits_for_an_api_server_that_is_away():
    scaled, away = asyncio.Event(), [True]
    wanted = [1]

    async def counts():
        if away.pop() if away else False:
            raise ApiAway("away")
        return wanted[0], wanted[0]

    async def demand():
        return 5.0

    async def scale(pods):
        wanted[0] = pods
        scaled.set()

    kept = autoscaling.Kept()
    scaling = Scaling(low=1, high=8, sync_s=0.01)
    await kept.start("autoscaler", autoscaling.follow(scaling, demand=demand, counts=counts, scale=scale))
    async with asyncio.timeout(5):
        await scaled.wait()
    await kept.stop_all()
    assert wanted == [5]  # 1 to 5: the HPA's four pods in its first 15 s


async def test_a_kept_task_that_failed_does_not_keep_restore_from_its_work():
    async def fails():
        raise NotStaged("the node still runs")

    kept = autoscaling.Kept()
    await kept.start("loss", fails())
    await asyncio.sleep(0)
    await kept.stop("loss")
    await kept.stop("loss")
