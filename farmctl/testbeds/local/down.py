"""Ends a local testbed completely, whether its supervisor answers, hangs or is long dead.

Only what carries the testbed's token is killed, and only files that are ours are removed.
"""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from farmctl.errors import StageError
from farmctl.testbeds.local.control_client import ControlClient
from farmctl.testbeds.local.processes import proctree
from farmctl.testbeds.local.processes.netcut import Netcut
from farmctl.testbeds.local.settings import WORK_PREFIX, LocalSettings
from farmctl.testbeds.local.state import StateFolder

SHUTDOWN_LIMIT_S = 15.0
KILL_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """``was_up``: a supervisor ran; ``killed``: processes that had to be killed one by one."""

    was_up: bool
    killed: int
    found: bool  # anything at all was there


async def take_down(folder: StateFolder, *, keep_up_lock: bool = False) -> Ended:
    """Leave no process, port, rule or file. Raises StageError when something survives."""
    if not folder.exists():
        return Ended(was_up=False, killed=0, found=False)
    was_up = folder.supervised()
    if was_up:
        await _ask_to_stop(folder)
    token, work = _known(folder)
    killed = await _kill_leftovers(token) if token else 0
    if was_up and folder.supervised():
        raise StageError(
            f"the supervisor of {folder.path} does not end",
            hint=f"fuser -k {folder.lock}, then farmctl down",
        )
    if token:
        await Netcut(token).clear()
    if work is not None and work.name.startswith(WORK_PREFIX):
        shutil.rmtree(work, ignore_errors=True)
    found = folder.settings.exists() or was_up
    folder.remove(keep_up_lock=keep_up_lock)
    return Ended(was_up=was_up, killed=killed, found=found)


async def _ask_to_stop(folder: StateFolder) -> None:
    try:
        async with asyncio.timeout(SHUTDOWN_LIMIT_S):
            await ControlClient(folder.socket).shutdown()
            while folder.supervised():
                await asyncio.sleep(0.05)
    except (StageError, TimeoutError):
        return  # it hangs or starts just now: the token finds it


async def _kill_leftovers(token: str) -> int:
    killed: set[int] = set()
    try:
        async with asyncio.timeout(KILL_LIMIT_S):
            while fresh := await asyncio.to_thread(proctree.kill_carriers, token):
                killed.update(fresh)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise StageError(f"processes of the farm do not die: {sorted(killed)}", hint="farmctl down") from None
    return len(killed)


def _known(folder: StateFolder) -> tuple[str, Path | None]:
    """The token and the work folder; of a settings file that cannot be read, what can be told from its bytes."""
    try:
        settings = LocalSettings.load(folder.settings)
        return settings.token, settings.work
    except (OSError, msgspec.DecodeError):
        pass
    try:
        rough = msgspec.json.decode(folder.settings.read_bytes())
        token = str(rough["token"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return "", None
    return token, Path(tempfile.gettempdir(), f"{WORK_PREFIX}{token}")
