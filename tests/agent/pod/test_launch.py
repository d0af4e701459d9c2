"""A lease with options: a Chrome of its own started with them, and nothing of it for anybody else."""

import json

import pytest
from farmagent.errors import ChromeStartError
from farmwire.launch_options import parse
from farmwire.reasons import Busy

OPTIONS = parse(
    {
        "proxy_server": "proxy:3128",
        "user_agent": "x",
        "lang": "de-DE,en",
        "timezone": "Europe/Berlin",
        "window": "1280x800",
        "args": "--hide-scrollbars",
    }
)
LAUNCH = f"Farm-Launch: {OPTIONS.as_header()}"
AS_FLAGS = (
    "--proxy-server=proxy:3128",
    "--user-agent=x",
    "--lang=de-DE",
    "--accept-lang=de-DE,en",
    "--window-size=1280,800",
    "--hide-scrollbars",
)


async def test_a_lease_with_options_gets_a_chrome_started_with_them_and_the_next_one_does_not(pod_with):
    async with pod_with(chrome_args="--mute-audio") as pod:
        await pod.until(lambda pod: pod.busy is None)
        usual = pod.chrome
        _, writer = await pod.leased("L1", LAUNCH)
        own = pod.chrome
        assert (own.flags, own.environment) == (("--mute-audio", *AS_FLAGS), {"TZ": "Europe/Berlin"})
        assert usual.returncode == -9
        # what everybody may read stays the pod's usual Chrome's
        assert json.loads((await pod.get("/json/version"))[2])["Browser"] == "Fake/1"
        writer.close()  # no byte came, and still nobody else gets this Chrome
        assert (await pod.get("/readyz?wait=5"))[0] == 200
        assert own.returncode == -9
        assert (pod.chrome.flags, pod.chrome.environment) == (("--mute-audio",), {})
        assert json.loads((await pod.get("/json/version"))[2])["Browser"] == "Fake/1"


async def test_the_hot_spare_outlasts_a_lease_with_options(pod_with):
    async with pod_with(recycle="spare", spare_after_s=600) as pod:
        await pod.until(lambda pod: pod.busy is None)
        usual = pod.chrome
        _, writer = await pod.leased("L1", LAUNCH)
        assert pod.chrome is not usual
        writer.close()
        assert (await pod.get("/readyz?wait=5"))[0] == 200
        assert pod.chrome is usual


async def test_a_chrome_that_ends_with_its_options_is_the_callers_fault(pod):
    pod.fail.extend([21])
    status, _, body, _, _ = await pod.lease("L1", LAUNCH)
    told = json.loads(body)
    assert (status, told["reason"], told["scope"]) == (422, "launch-refused", "caller")
    assert "exit code 21" in told["detail"]
    assert (await pod.get("/readyz?wait=5"))[0] == 200
    await pod.leased("L2")
    assert pod.chrome.flags == ()


async def test_a_chrome_that_the_machine_killed_at_start_is_not(pod):
    pod.fail.extend([-9])
    status, _, body, _, _ = await pod.lease("L1", LAUNCH)
    assert (status, json.loads(body)) == (409, {"reason": "recycling"})


async def test_a_chrome_that_hangs_at_start_gives_the_caller_to_another_pod(pod, monkeypatch):
    monkeypatch.setattr("farmagent.lease.pod.OWN_CHROME_S", 0.05)
    monkeypatch.setattr(type(pod.chrome), "listening", _for_ever)
    status, _, body, _, _ = await pod.lease("L1", LAUNCH)
    assert (status, json.loads(body)) == (409, {"reason": "recycling"})
    monkeypatch.undo()


async def _for_ever(chrome, *, timeout_s):
    await chrome.exited.wait()
    raise ChromeStartError("killed")


async def test_a_proxy_that_leaves_while_a_chrome_starts_leaves_a_usual_one(pod, monkeypatch):
    monkeypatch.setattr(type(pod.chrome), "listening", _for_ever)
    _reader, writer = await pod.connect()
    lines = ["GET /lease HTTP/1.1", "Host: 10.0.0.1", "Connection: Upgrade", "Upgrade: farm-lease"]
    writer.write("\r\n".join([*lines, "Farm-Lease: L1", LAUNCH, "", ""]).encode())
    await pod.until(lambda pod: pod.busy is Busy.BUSY)
    monkeypatch.undo()
    writer.close()
    assert (await pod.get("/readyz?wait=5"))[0] == 200
    assert pod.chrome.flags == ()


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ("--proxy-server=corp:3128", {"proxy_server": "elsewhere:80"}),
        ("--proxy-server=corp:3128", {"args": "--proxy-bypass-list=*"}),
        ("--no-proxy-server", {"proxy_server": "elsewhere:80"}),
        ("--window-size=800,600", {"window": "1280x800"}),
    ],
)
async def test_what_the_pods_owner_has_set_stays(pod_with, own, asked):
    async with pod_with(chrome_args=own) as pod:
        await pod.until(lambda pod: pod.busy is None)
        usual = pod.chrome
        status, _, body, _, _ = await pod.lease("L1", f"Farm-Launch: {parse(asked).as_header()}")
        told = json.loads(body)
        assert (status, told["scope"], own.partition("=")[0] in told["detail"]) == (422, "caller", True)
        assert pod.chrome is usual
        assert pod.pod.busy is None


async def test_options_that_this_agent_does_not_know_are_refused_to_their_caller(pod):
    for launch in ('{"colour":"red"}', "garbage", '{"timezone":"Nowhere/Land"}'):
        status, _, body, _, _ = await pod.lease("L1", f"Farm-Launch: {launch}")
        assert (status, json.loads(body)["scope"]) == (422, "caller")
