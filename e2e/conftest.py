"""One session fixture brings a farm up on the testbed asked for and takes it down; a failed set-up ends the run.

What a failed test leaves to look at is exported before anything is taken down. On kind the cluster is farmctl's own work
from its own kind and kubectl; pytest-kind's object is put onto it for the tests to speak through.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from e2e import clusters, evidence

CLUSTER = "farm-e2e"  # not "farm": a cluster of that name may be somebody's own
# With cold caches everything is built from source first, which takes the better part of an hour.
UP_S = 5400
INTERRUPTED_S = 15.0  # for a command that was interrupted as well to undo what it began


def pytest_addoption(parser: pytest.Parser) -> None:
    # --keep-cluster is pytest-kind's own option: here it keeps the farm up, on either testbed.
    group = parser.getgroup("farm")
    group.addoption("--testbed", default="local", choices=["local", "kind"], help="Where the farm runs.")
    group.addoption(
        "--door", default="", help="HOST:PORT of the farm that is brought up, if not farmctl's own."
    )
    group.addoption("--reuse-farm", action="store_true", help="Test the farm that is up, and leave it up.")
    group.addoption(
        "--logs",
        type=Path,
        default=Path(os.environ.get("FARMCTL_E2E_LOGS") or "build/e2e-logs"),
        help="Folder for what a failed test leaves to look at (FARMCTL_E2E_LOGS; default: %(default)s).",
    )


def farmctl(*words: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run the command as its user would; its stderr goes to ours, so that a failure can be read in CI.

    Ctrl-C is the command's as well: it is waited for while it undoes what it began, which subprocess.run would not do.
    """
    command = [sys.executable, "-m", "farmctl", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except KeyboardInterrupt:
            try:
                process.wait(INTERRUPTED_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # it was ours alone
            raise
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out)


@pytest.fixture(scope="session")
def testbed(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--testbed"))


@pytest.fixture(scope="session")
def farm(request: pytest.FixtureRequest, testbed: str, tmp_path_factory: pytest.TempPathFactory):
    """A farm of four pods, in a state folder of this run's own. Yields `farmctl status` as JSON."""
    config = request.config
    if config.getoption("--reuse-farm"):
        yield json.loads(farmctl("status", "-o", "json").stdout)
        return
    state = own_state(tmp_path_factory)
    words = ["--name", CLUSTER] if testbed == "kind" else []
    words += ["--door", config.getoption("--door")] if config.getoption("--door") else []
    # pytest.exit() drops what was captured: the reason would be lost.
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            brought = farmctl("up", "--testbed", testbed, *words, timeout_s=UP_S)
        except BaseException:  # Ctrl-C above all
            farmctl("down")
            raise
    if brought.returncode != 0:
        evidence.of_a_failed_up(state, config.getoption("--logs"))
        if not config.getoption("--keep-cluster"):
            farmctl("down")
        pytest.exit(f"farmctl up exited {brought.returncode}: nothing can be tested", returncode=3)
    yield json.loads(farmctl("status", "-o", "json").stdout)
    if evidence.was_exported(config.getoption("--logs")):
        evidence.of_nodes(config.getoption("--logs"))
    if config.getoption("--keep-cluster"):
        print(f"\nkept: FARMCTL_STATE={state} farmctl status", file=sys.__stderr__)
        return
    assert farmctl("down").returncode == 0
    assert not list(state.glob("*")), "down left files behind"


def own_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FARMCTL_STATE if it is given (CI cleans up by it), and never one that holds somebody's farm."""
    if given := os.environ.get("FARMCTL_STATE"):
        if list(Path(given).glob("*")):
            pytest.exit(f"{given} holds a farm already: --reuse-farm tests that one", returncode=3)
    else:
        os.environ["FARMCTL_STATE"] = str(tmp_path_factory.mktemp("farm-state"))
    return Path(os.environ["FARMCTL_STATE"])


@pytest.fixture(scope="session")
def door(farm) -> str:
    return os.environ.get("FARMCTL_DOOR") or farm["door"]


@pytest.fixture(scope="session")
def only_on_kind(testbed: str) -> None:
    if testbed != "kind":
        pytest.skip("needs --testbed kind")


@pytest.fixture(scope="session")
def cluster(only_on_kind, farm):
    """The kind cluster as farmctl itself opens it."""
    there = clusters.opened()
    assert there is not None, "the farm that is up is not on kind"
    return there


@pytest.fixture(scope="session")
def kind_cluster(cluster, tmp_path_factory):
    """pytest-kind's KindCluster on the cluster that `farmctl up` made, with our kind and kubectl.

    Only that much of pytest-kind: left to itself it downloads kind v0.17 and knows neither our network, images and
    manifests nor podman, so its create() would test another cluster than users get. The fork pytest-kind-ng names the
    same old kind and differs in nothing that is used here.
    """
    from pytest_kind import KindCluster

    assert cluster.nodes(), "create() adopts what it finds and would make what it does not"
    with pytest.MonkeyPatch.context() as patched, chdir(tmp_path_factory.mktemp("pytest-kind")):
        for name, value in cluster.engine.env.items():
            patched.setenv(name, value)
        adopted = KindCluster(
            cluster.shape.name,
            kubeconfig=cluster.folder.kubeconfig,
            kind_path=cluster.kind,
            kubectl_path=cluster.kubectl.program,
        )
        adopted.create()
    return adopted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.failed and "farm" in getattr(item, "fixturenames", ()):
        # A test that passes at its second try leaves no other trace of why the first one failed.
        print(f"\n{evidence.WHY} {item.nodeid}: {evidence.reason(report)}", file=sys.stderr)
        evidence.of_a_test(item.name, item.config.getoption("--logs"))
    return report


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", default=None) or hasattr(config, "workerinput"):  # pytest-xdist's
        raise pytest.UsageError(
            "these tests share one farm and break it on purpose: run them in one process, without -n"
        )
    # As in tests/conftest.py: Python 3.11 would make a loop for pytest-asyncio's first question, and nobody closes it.
    asyncio.set_event_loop(None)
    shutil.rmtree(config.getoption("--logs") / evidence.FOLDER, ignore_errors=True)
