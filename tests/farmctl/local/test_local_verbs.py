"""The verbs as people type them: what they print, on which stream, with which exit code."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest
import yaml

from farmctl import cli
from farmctl.commands import up as up_module
from farmctl.testbeds.local.processes import proctree


@pytest.fixture
def farm(settings, monkeypatch):
    """The environment and the settings of `farmctl up`, with stand-ins; taken down at the end."""
    monkeypatch.setenv("FARMCTL_STATE", str(settings.state))
    real = up_module.settings_for

    def with_stand_ins(folder, pods, door, asked):
        made = real(folder, pods, door or settings.door, asked)
        changed = ("token", "work", "chrome", "admin", "network", "agent_command", "proxy_command", "grace_s")
        setup = replace(settings.setup, pods=made.setup.pods)
        return replace(made, setup=setup, **{name: getattr(settings, name) for name in changed})

    monkeypatch.setattr(up_module, "settings_for", with_stand_ins)
    yield settings
    cli.main(["down"])


@pytest.fixture
def run(capsys):
    def running(*words):
        capsys.readouterr()
        code = cli.main(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return running


def test_a_farm_from_up_to_down(farm, run):
    code, out, err = run("up", "--pods", "2")
    assert code == 0
    assert "testbed: local" in err
    assert "whole after" in err
    assert out.splitlines() == [
        f"door   http://{farm.door}",
        f"admin  http://{farm.admin}",
        "pods   2 of 2 ready",
    ]

    code, out, err = run("status")
    assert (code, err) == (0, "")
    head, one, two, *rest = out.splitlines()
    assert head.split() == ["NAME", "STATE", "PROXY", "LEASE", "RESTARTS", "ADDRESS", "AGE"]
    assert one.split()[1:5] == ["ready", "free", "<none>", "0"]
    assert "pods Ready: 2, endpoints ready: 2" in rest[0]

    names = [line.split()[0] for line in (one, two)]
    assert run("status", "-o", "name")[1].split() == [f"pod/{name}" for name in names]
    told = json.loads(run("status", "-o", "json")[1])
    assert (told["podsReady"], told["endpointsReady"], told["testbed"]) == (2, 2, "local")
    assert yaml.safe_load(run("status", "-o", "yaml")[1])["pods"][0]["name"] == names[0]
    assert told["pods"][0]["uid"] in run("status", "-o", "wide")[1]

    code, out, _ = run("scale", "3")
    assert (code, out) == (0, "farm/local scaled to 3\n")
    assert len(json.loads(run("status", "-o", "json")[1])["pods"]) == 3
    code, out, _ = run("scale", "--auto", "1:4", "--no-wait")
    assert (code, out) == (0, "farm/local scales 1 to 4\n")

    code, out, _ = run("logs", f"pod/{names[0]}", "--tail", "1")
    assert (code, json.loads(out)["event"]) == (0, "chrome-started")
    assert "pod-created" in run("logs", "supervisor")[1]
    code, _, err = run("logs", "nobody")
    assert code == 3
    assert "proxy" in err

    assert run("down")[:2] == (0, "farm/local deleted\n")
    code, out, err = run("down")
    assert (code, out) == (0, "")
    assert "nothing to delete" in err


def test_status_exits_3_when_pod_and_endpoint_disagree_for_long(farm, run):
    assert run("up", "--pods", "1", "-q")[0] == 0
    from farmctl.testbeds.local.control_client import ControlClient
    from farmctl.testbeds.local.state import StateFolder

    client = ControlClient(StateFolder(farm.state).socket)
    pod = json.loads(run("status", "-o", "json")[1])["pods"][0]
    _sync(client.verb("set_probes", period_s=0.1, threshold=1, slice_delay_s=300))
    urllib.request.urlopen(f"http://{pod['address']}/set?ready=0", timeout=5).close()
    while json.loads(run("status", "-o", "json")[1])["podsReady"]:
        pass
    code, out, _ = run("status", "--disagree-after", "0")
    assert code == 3
    assert "pods Ready: 0, endpoints ready: 1" in out
    assert f"{pod['name']}: pod not-ready, endpoint ready, for" in out
    assert run("status", "--disagree-after", "1000")[0] == 0


def _sync(awaitable):
    import asyncio

    return asyncio.run(awaitable)


@pytest.mark.parametrize("words", [["status"], ["scale", "2"], ["logs"]])
def test_without_a_farm_says_how_to_get_one(tmp_path, monkeypatch, run, words):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "none"))
    code, out, err = run(*words)
    assert (code, out) == (3, "")
    assert "no farm is up" in err
    assert "try: farmctl up" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--pods", "-1"],
        ["up", "--pods", "201"],
        ["up", "--door", "9222"],
        ["up", "--door", "127.0.0.1:99999"],
        ["up", "--testbed", "moon"],
        ["scale"],
        ["scale", "2", "--auto", "1:2"],
        ["scale", "--auto", "4:2"],
        ["scale", "--auto", "a:b"],
        ["scale", "--auto", "0:0"],
        ["status", "-o", "xml"],
    ],
)
def test_wrong_words_are_exit_2(tmp_path, monkeypatch, run, words):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "none"))
    assert run(*words)[0] == 2
    assert not (tmp_path / "none").exists()


def test_no_chromium_is_exit_3_with_the_remedy(tmp_path, monkeypatch, run):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "none"))
    monkeypatch.setenv("FARMCTL_CHROME", str(tmp_path / "no-chrome"))
    code, _, err = run("up")
    assert code == 3
    assert "no-chrome" in err
    assert "try:" in err
    assert not (tmp_path / "none").exists()


def test_ctrl_c_half_way_leaves_nothing(settings, until):
    """The real command with the real agent, but a Chrome that never answers."""
    env = {
        **os.environ,
        "FARMCTL_STATE": str(settings.state),
        "FARMCTL_NETWORK": settings.network,
        "FARMCTL_CHROME": settings.chrome,
        proctree.TOKEN_VARIABLE: f"test-{settings.token}",
    }
    # A shell without job control starts what runs in its background with Ctrl-C ignored, and so the tests.
    words = ["env", "--default-signal=INT", sys.executable, "-m", "farmctl", "up", "--pods", "1"]
    words += ["--door", settings.door]
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as process:
        while not (settings.state / "control.sock").exists():
            assert process.poll() is None, process.stderr.read()
        token = json.loads((settings.state / "settings.json").read_text())["token"]
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert process.returncode == 130
    assert not proctree.carriers(token)
    assert not settings.state.exists()
