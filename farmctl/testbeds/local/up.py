"""Starts a local testbed in the background and waits until it is whole; what it began and could not finish, it ends.

A farm that runs already is kept: a second ``up`` only brings the pod count to what was asked for.
"""

import asyncio
import atexit
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from farmctl.errors import StageError
from farmctl.testbeds.base import NoFarm, Setup
from farmctl.testbeds.local import preflight
from farmctl.testbeds.local.control_client import ControlClient
from farmctl.testbeds.local.down import take_down
from farmctl.testbeds.local.processes.proctree import TOKEN_VARIABLE
from farmctl.testbeds.local.settings import LocalSettings
from farmctl.testbeds.local.state import PROXY_LOG, SUPERVISOR_LOG, StateFolder
from farmctl.testbeds.log_files import tail
from farmctl.testbeds.state_folders import explained

POLL_S = 0.1
DEATHS = 2  # what died this often while the farm starts will not start
ANSWER_LIMIT_S = 10.0
LOG_LINES = 5

State = dict[str, Any]
Progress = Callable[[State], None]


async def bring_up(
    settings: LocalSettings,
    folder: StateFolder,
    *,
    pods: int | None,
    door_named: bool,
    timeout_s: float,
    progress: Progress,
) -> State:
    """Return the state of a whole farm; ``pods`` is the count asked for by name, if any was; ``door_named``
    says whether the door was.

    Raises StageError with cause and remedy. What this call began is gone then, also when it is cancelled.
    """
    folder.make()
    with folder.held(folder.up_lock) as ours:
        if not ours:
            raise StageError("another `farmctl up` is at work on this farm", hint="farmctl status -w")
        if folder.supervised():
            door = settings.door if door_named else None
            return await _adopt(folder, settings.setup, pods, door, timeout_s, progress)
        await take_down(folder, keep_up_lock=True)  # what a crash left
        try:
            preflight.check(settings)
            with explained(folder.path):
                folder.make()
                process = _launch(settings, folder)
            return await _until_whole(folder, timeout_s, progress, process)
        except BaseException:
            await take_down(folder)
            raise


def _launch(settings: LocalSettings, folder: StateFolder) -> "subprocess.Popen[bytes]":
    settings.save(folder.settings)
    settings.work.mkdir(mode=0o711)
    settings.work.chmod(0o711)
    with folder.logs.open(SUPERVISOR_LOG) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "farmctl.testbeds.local", str(folder.path)],
            env={**os.environ, TOKEN_VARIABLE: settings.token},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    atexit.register(process.poll)  # it outlives us: kept from being collected, reaped if it has ended
    return process


async def _adopt(
    folder: StateFolder,
    wanted: Setup,
    pods: int | None,
    door: str | None,
    timeout_s: float,
    progress: Progress,
) -> State:
    client = ControlClient(folder.socket)
    state = await _answer(client)
    runs = state["settings"]
    if door is not None and runs["door"] != door:
        raise StageError(
            f"a farm is up with its door at {runs['door']}, not {door}",
            hint="farmctl down, then up again",
        )
    if changes := wanted.overrides.changes(msgspec.convert(runs["setup"], Setup).overrides):
        raise StageError(
            f"a farm is up with other settings: {'; '.join(changes)}",
            hint="farmctl down, then the same farmctl up",
        )
    if pods is not None and pods != state["wanted"]:
        await client.verb("resize", pods=pods, scaling=None)
    return await _until_whole(folder, timeout_s, progress, None)


async def _answer(client: ControlClient) -> State:
    """A supervisor that has the lock may still be starting, or be ending, or hang."""
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            while True:
                try:
                    return await client.state()
                except NoFarm:
                    await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise StageError(
            "a supervisor runs but does not answer", hint="farmctl down, then up again"
        ) from None


async def _until_whole(
    folder: StateFolder, timeout_s: float, progress: Progress, process: "subprocess.Popen[bytes] | None"
) -> State:
    client = ControlClient(folder.socket)
    state: State | None = None
    async with _explained_timeout(timeout_s, lambda: lacks(state)):
        while True:
            try:
                state = await client.state()
            except NoFarm:
                _check_supervisor(folder, process)
            else:
                progress(state)
                if is_whole(state, fresh=process is not None):
                    return state
                _check_deaths(folder, state)
            await asyncio.sleep(POLL_S)


async def until_whole(folder: StateFolder, timeout_s: float, progress: Progress) -> State:
    """Wait for a running farm to be as many pods as are wanted. Raises StageError."""
    return await _until_whole(folder, timeout_s, progress, None)


def is_whole(state: State, *, fresh: bool) -> bool:
    """Every pod was ready once, the proxy is ready; in a ``fresh`` farm the slices say so too."""
    if not state["settled"] or not state["proxy"]["ready"]:
        return False
    return not fresh or all(one["endpoint_ready"] for one in state["readiness"])


def _check_supervisor(folder: StateFolder, process: "subprocess.Popen[bytes] | None") -> None:
    if folder.fatal.exists():
        told = json.loads(folder.fatal.read_text())
        raise StageError(f"the farm could not start: {told['message']}", hint=told["hint"])
    if process is not None and process.poll() is not None:
        raise StageError(_with_log("the supervisor ended at once", folder, SUPERVISOR_LOG))


def _check_deaths(folder: StateFolder, state: State) -> None:
    if state["proxy"]["restarts"] >= DEATHS:
        raise StageError(_with_log("the proxy dies as soon as it starts", folder, PROXY_LOG))
    for pod in state["pods"]:
        if pod["restarts"] >= DEATHS and not pod["ready"]:
            text = "\n".join(tail(folder.pod_logs.path(pod["name"]), LOG_LINES))
            raise StageError(
                f"the agent of {pod['name']} dies as soon as it starts\n{text}", hint="farmctl doctor"
            )


def _with_log(message: str, folder: StateFolder, name: str) -> str:
    return "\n".join([message, *tail(folder.logs.path(name), LOG_LINES)])


def lacks(state: State | None) -> str:
    """What a farm that is not whole waits for."""
    if state is None:
        return "the supervisor does not answer"
    lacks = [pod["name"] for pod in state["pods"] if not pod["ready"]]
    if lacks:
        return f"not ready: {', '.join(lacks)}"
    return "the proxy is not ready" if not state["proxy"]["ready"] else "the endpoints are not ready"


@asynccontextmanager
async def _explained_timeout(timeout_s: float, lacks: Callable[[], str]) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise StageError(
            f"the farm is not whole after {timeout_s:g} s: {lacks()}",
            hint="a longer --timeout, fewer --pods, or `farmctl doctor`",
        ) from None
