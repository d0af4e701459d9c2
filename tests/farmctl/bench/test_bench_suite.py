import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farmctl import cli
from farmctl.bench import network, stage, suite
from farmctl.bench.load import processes
from farmctl.bench.measures import kind, lease, relay
from farmctl.bench.results import Section
from farmctl.errors import StageError


@pytest.fixture(autouse=True)
def same_limits():
    was = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, was)


@pytest.fixture(autouse=True)
def isolated(monkeypatch):
    """The network of the tests' own process stays as it is. Yields the list of times it was to be left."""
    times = []
    monkeypatch.setattr(network, "isolate", lambda: times.append(1))
    return times


def measured(_stage):
    return Section("lease", "A title", "How.", 1)


def not_staged(_stage):
    raise StageError("haproxy is not installed", hint="sudo apt-get install haproxy")


def test_one_that_cannot_be_staged_does_not_lose_the_others(monkeypatch):
    monkeypatch.setattr(lease, "measure", measured)
    monkeypatch.setattr(relay, "measure", not_staged)
    run = suite.run(["relay", "lease"], rounds=1, quick=True, say=lambda _: None)
    assert [section.name for section in run.sections] == ["lease"]
    assert run.unstaged == {"relay": "haproxy is not installed (try: sudo apt-get install haproxy)"}


def test_the_verb_writes_its_json_and_says_what_was_not_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(lease, "measure", measured)
    monkeypatch.setattr(relay, "measure", not_staged)
    out = tmp_path / "performance.json"
    assert cli.main(["bench", "lease", "--quick", "--out", str(out), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())
    assert cli.main(["bench", "relay", "--quick"]) == 3
    assert "haproxy is not installed" in capsys.readouterr().err
    assert cli.main(["bench", "--docs", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "performance.md")


@pytest.mark.parametrize("words", [["speed"], ["-o", "yaml"], ["--docs", "/nowhere/performance.json"]])
def test_wrong_words_are_usage(words, capsys):
    assert cli.main(["bench", *words]) == 2
    assert capsys.readouterr().err


def test_only_a_run_that_needs_no_cluster_leaves_the_machine_s_network(monkeypatch, isolated):
    for module in (lease, kind):
        monkeypatch.setattr(module, "measure", measured)
    suite.run(["kind"], rounds=1, quick=True, say=print)
    assert not isolated
    suite.run(["lease"], rounds=1, quick=True, say=print)
    assert isolated


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network")
def test_a_network_of_its_own_has_a_loopback_and_nothing_else():
    code = (
        "import socket; from farmctl.bench import network; print(network.isolate(), socket.if_nameindex()[0][1]); "
        "server = socket.create_server(('127.9.0.1', 0)); socket.create_connection(server.getsockname()).close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True lo\n"), done.stderr


def test_another_system_is_told_so(monkeypatch):
    monkeypatch.setattr(suite.sys, "platform", "darwin")
    with pytest.raises(StageError, match="need Linux"):
        suite.run(["lease"], rounds=1, quick=True, say=print)


def test_descriptors_are_raised_to_what_the_machine_permits():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
    assert stage.raise_descriptors() == most
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)


def test_the_machine_and_the_versions_are_described():
    assert stage.machine()["cores"] == os.cpu_count()
    assert stage.versions()["python"].startswith("3.")


def test_a_measured_program_dies_with_the_benchmark(tmp_path):
    """A killed benchmark leaves no proxy behind."""
    code = (
        "import sys, os, signal; from pathlib import Path; from farmctl.bench.load import processes\n"
        "every = frozenset(os.sched_getaffinity(0))\n"
        "child = processes.start(['sleep', '60'], every, log=Path(sys.argv[1]))\n"
        "print(child.pid, flush=True); signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        processes.wait_for(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", "it runs")
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the measured program outlived its benchmark"
        time.sleep(0.02)
