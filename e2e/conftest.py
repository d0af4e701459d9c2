"""One session fixture brings a farm up on the testbed asked for and takes it down; a failed set-up ends the run."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("farm")
    group.addoption("--testbed", default="local", choices=["local", "kind"], help="Where the farm runs.")
    group.addoption("--keep-farm", action="store_true", help="Leave the farm up after the run.")
    group.addoption("--reuse-farm", action="store_true", help="Test the farm that is up, and leave it up.")


def farmctl(*words: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run the command as its user would; its stderr goes to ours, so that a failure can be read in CI."""
    return subprocess.run(
        [sys.executable, "-m", "farmctl", *words],
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="session")
def testbed(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--testbed"))


@pytest.fixture(scope="session")
def farm(request: pytest.FixtureRequest, testbed: str, tmp_path_factory: pytest.TempPathFactory):
    """A farm of four pods, in a state folder of this run's own. Yields `farmctl status` as JSON."""
    if request.config.getoption("--reuse-farm"):
        yield json.loads(farmctl("status", "-o", "json").stdout)
        return
    os.environ["FARMCTL_STATE"] = str(tmp_path_factory.mktemp("farm-state"))
    # With cold caches a cluster is built from source first, which takes the better part of an hour.
    brought = farmctl("up", "--testbed", testbed, timeout_s=5400)
    if brought.returncode != 0:
        pytest.exit(f"farmctl up exited {brought.returncode}: nothing can be tested", returncode=3)
    yield json.loads(farmctl("status", "-o", "json").stdout)
    if not request.config.getoption("--keep-farm"):
        assert farmctl("down").returncode == 0
        assert not list(Path(os.environ["FARMCTL_STATE"]).glob("*")), "down left files behind"


@pytest.fixture(scope="session")
def door(farm) -> str:
    return os.environ.get("FARMCTL_DOOR", "http://127.0.0.1:9222")


def pytest_configure() -> None:
    # As in tests/conftest.py: Python 3.11 would make a loop for pytest-asyncio's first question, and nobody closes it.
    asyncio.set_event_loop(None)
