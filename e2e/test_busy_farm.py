"""What a real cluster does to pods in use, which are not ready: evictions, a second `up`, probes, a short grace."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Error, async_playwright

from e2e.conftest import farmctl
from farmctl.testbeds.kind.cluster import waiting
from farmctl.testbeds.kind.cluster.nodes import sh

pytestmark = [pytest.mark.timeout(600, func_only=True), pytest.mark.usefixtures("only_on_kind")]
PODS = 4
CONNECT_MS = 120_000
NO_LIVENESS_S = 35  # longer than three liveness probes of 10 s, after which a kubelet restarts
# comm is 15 characters long.
STOP_CONTROLLERS = "pkill -STOP -x kube-controller"
GO_ON = "pkill -CONT -x kube-controller || true"


def pods(kubectl) -> dict[str, dict]:
    """The browsers' pods by name, those that end included."""
    found = kubectl.get("pods", "-n", "farm", "-l", "app.kubernetes.io/name=browser")
    return {pod["metadata"]["name"]: pod for pod in found}


def is_ready(pod: dict) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])


def until(state, what: str) -> None:
    waiting.wait_for(state, what, timeout_s=180)


def all_free() -> bool:
    proxy = json.loads(farmctl("status", "-o", "json").stdout)["proxy"]
    return [pod["state"] for pool in proxy["pools"].values() for pod in pool["pods"]] == ["free"] * PODS


@asynccontextmanager
async def full_farm(door, kubectl):
    """Every pod in use; yields a page on each. Afterwards all are free again."""
    async with async_playwright() as playwright:
        taken = [await playwright.chromium.connect_over_cdp(door, timeout=CONNECT_MS) for _ in range(PODS)]
        await asyncio.to_thread(
            until, lambda: not any(map(is_ready, pods(kubectl).values())), "no pod is ready, all are in use"
        )
        yield [await browser.new_page() for browser in taken]
        for browser in taken:
            await browser.close()
    await asyncio.to_thread(until, all_free, "all are free again")


async def answers(page) -> bool:
    return await page.evaluate("6 * 7") == 42


async def test_evicted_pods_in_use_finish_their_sessions(cluster, kind_cluster, door):
    """A drain of a farm in full use is not blocked, breaks no session, and ends soon after the last of them."""
    async with full_farm(door, cluster.kubectl) as pages:
        before = pods(cluster.kubectl)
        for name in before:
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            answer = await asyncio.to_thread(
                kind_cluster.api.post,
                url=f"/pods/{name}/eviction",
                namespace="farm",
                data=json.dumps(eviction),
            )
            assert answer.status_code == 201, answer.text
        ending = pods(cluster.kubectl)
        assert all("deletionTimestamp" in ending[name]["metadata"] for name in before)
        assert [await answers(page) for page in pages] == [True] * PODS
    await asyncio.to_thread(
        until, lambda: not set(before) & set(pods(cluster.kubectl)), "the evicted pods are gone"
    )


def test_a_drain_is_not_blocked_by_the_only_proxy(cluster, kind_cluster):
    """Asked with dryRun: its eviction is allowed, though no other proxy is there."""
    found = cluster.kubectl.get("pods", "-n", "farm", "-l", "app.kubernetes.io/name=proxy")
    (name,) = [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": {"dryRun": ["All"]},
    }
    answer = kind_cluster.api.post(url=f"/pods/{name}/eviction", namespace="farm", data=json.dumps(eviction))
    assert answer.status_code == 201, answer.text


def listed_ready(kubectl) -> int:
    """How many endpoints of the browsers' Service are ready."""
    label = "kubernetes.io/service-name=browsers"
    slices = kubectl.get("endpointslices.discovery.k8s.io", "-n", "farm", "-l", label)
    return sum(each["conditions"]["ready"] for one in slices for each in one.get("endpoints") or ())


async def test_an_endpoint_that_nobody_rewrites_is_told_and_its_pod_serves(cluster, door):
    """The controllers stand still while the leases end: pods are ready again, endpoints are not. The proxy believes the
    agents; `farmctl status` names the pods, and fails.
    """
    (control,) = [each.name for each in cluster.nodes() if each.role == "control-plane"]
    async with full_farm(door, cluster.kubectl):
        await asyncio.to_thread(until, lambda: listed_ready(cluster.kubectl) == 0, "no endpoint is ready")
        await asyncio.to_thread(sh, cluster.engine, control, STOP_CONTROLLERS)
    try:
        await asyncio.to_thread(
            until, lambda: all(map(is_ready, pods(cluster.kubectl).values())), "pods are ready"
        )
        told = await asyncio.to_thread(farmctl, "status", "--disagree-after", "1")
        assert listed_ready(cluster.kubectl) == 0, (
            "the kubelet has restarted the controllers: nothing was shown"
        )
        assert f"pods Ready: {PODS}, endpoints ready: 0" in told.stdout
        assert told.returncode == 3
        async with a_session(door) as page:
            assert await answers(page)
    finally:
        await asyncio.to_thread(sh, cluster.engine, control, GO_ON)
    await asyncio.to_thread(
        until, lambda: listed_ready(cluster.kubectl) == PODS, "the endpoints are ready again"
    )


@asynccontextmanager
async def a_session(door):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(door, timeout=CONNECT_MS)
        yield await browser.new_page()
        await browser.close()


async def test_second_up_of_a_farm_in_full_use_returns(cluster, door):
    async with full_farm(door, cluster.kubectl) as pages:
        before = pods(cluster.kubectl)
        done = await asyncio.to_thread(farmctl, "up", "--testbed", "kind", timeout_s=300)
        assert done.returncode == 0
        assert set(pods(cluster.kubectl)) == set(before)
        assert [await answers(page) for page in pages] == [True] * PODS


async def test_pod_in_use_is_not_restarted_for_being_busy(cluster, door):
    def restarts():
        return {
            name: pod["status"]["containerStatuses"][0]["restartCount"]
            for name, pod in pods(cluster.kubectl).items()
        }

    async with full_farm(door, cluster.kubectl) as pages:
        before = restarts()
        await asyncio.sleep(NO_LIVENESS_S)  # the trigger itself: a session that outlasts the liveness probe
        assert restarts() == before
        assert not any(map(is_ready, pods(cluster.kubectl).values()))
        assert [await answers(page) for page in pages] == [True] * PODS


async def test_short_grace_costs_one_session(cluster, door):
    """As on a reclaimed machine: SIGTERM, and SIGKILL 5 s later, with a session that would go on for longer."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(door, timeout=CONNECT_MS)
        page = await browser.new_page()
        victim = await asyncio.to_thread(leased)
        cluster.kubectl("delete", "pod", victim, "-n", "farm", "--grace-period=5", "--wait=false")
        assert await answers(page)  # it drains: the session goes on until the kill
        await asyncio.to_thread(until, lambda: victim not in pods(cluster.kubectl), "the pod is gone")
        with pytest.raises(Error, match="closed"):
            await page.evaluate("1")
        again = await playwright.chromium.connect_over_cdp(door, timeout=CONNECT_MS)  # the caller's retry
        assert await answers(await again.new_page())
        await again.close()
    await asyncio.to_thread(until, all_free, "the farm has healed")


def leased() -> str:
    """The name of the one pod that is in use."""
    proxy = json.loads(farmctl("status", "-o", "json").stdout)["proxy"]
    (name,) = [
        pod["name"] for pool in proxy["pools"].values() for pod in pool["pods"] if pod["state"] == "leased"
    ]
    return name
