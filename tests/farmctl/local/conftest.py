"""A local testbed with stand-ins for agent and proxy, on addresses of its own and state in the test's folder."""

import asyncio
import itertools
import os
import random
import secrets
import shutil
import socket
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from farmctl.testbeds.base import Setup
from farmctl.testbeds.local.control_client import ControlClient
from farmctl.testbeds.local.down import take_down
from farmctl.testbeds.local.settings import WORK_PREFIX, LocalSettings
from farmctl.testbeds.local.state import StateFolder
from farmctl.testbeds.local.testbed import LocalTestbed
from farmctl.testbeds.local.up import bring_up

HERE = Path(__file__).parent
_networks = itertools.count(os.getpid() % 100)


def free_pair() -> int:
    """A port that is free, as the next one is; below the range that outgoing connections are given."""
    while True:
        port = random.randrange(20_000, 32_000, 2)
        with socket.socket() as one, socket.socket() as two, suppress(OSError):
            one.bind(("127.0.0.1", port))
            two.bind(("127.0.0.1", port + 1))
            return port


@pytest.fixture
def folder(tmp_path):
    return StateFolder(tmp_path / "state")


@pytest.fixture
def settings(tmp_path, folder):
    """Change with dataclasses.replace."""
    token, port = secrets.token_hex(6), free_pair()
    return LocalSettings(
        state=folder.path,
        work=Path(tempfile.gettempdir(), f"{WORK_PREFIX}{token}"),  # where another uid may come
        token=token,
        chrome=shutil.which("sleep"),
        setup=Setup(pods=2, probe_period_s=0.1),
        door=f"127.0.0.1:{port}",
        admin=f"127.0.0.1:{port + 1}",
        network=f"127.0.{100 + next(_networks) % 100}",
        agent_command=(sys.executable, "-S", str(HERE / "fake_agent.py")),
        proxy_command=(sys.executable, "-S", str(HERE / "fake_proxy.py")),
        grace_s=5.0,
    )


class Farm:
    """A running farm under test."""

    def __init__(self, settings, folder, testbed):
        self.settings, self.folder, self.testbed = settings, folder, testbed
        self.client = ControlClient(folder.socket)


async def start(settings, folder, **asked):
    arguments = {"pods": None, "door_named": False, "timeout_s": 30, "progress": lambda _: None, **asked}
    return await bring_up(settings, folder, **arguments)


@pytest.fixture
def up(folder):
    """``async with up(settings) as farm``: taken down afterwards, whatever happened."""

    @asynccontextmanager
    async def running(settings, **asked):
        try:
            await start(settings, folder, **asked)
            yield Farm(settings, folder, await LocalTestbed.connect(folder))
        finally:
            await take_down(folder)

    return running


async def until(holds, limit_s=15.0):
    """Wait for a state: call ``holds`` (it may be async) until its result is true; return that."""
    async with asyncio.timeout(limit_s):
        while True:
            result = holds()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(0.02)


@pytest.fixture(name="until")
def until_fixture():
    return until
