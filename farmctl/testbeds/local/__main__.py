"""The supervisor: ``python -m farmctl.testbeds.local STATE_FOLDER`` runs one farm until it is told to stop.

It holds the state folder's lock while it lives, ends everything it started when it ends, and ends by itself when
its folder is taken away. Why it could not run stands in the folder's fatal.json.
"""

import asyncio
import json
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp

from farmctl.errors import FarmctlError
from farmctl.testbeds.local.control_plane.plane import Plane
from farmctl.testbeds.local.control_server import ControlServer
from farmctl.testbeds.local.processes.netcut import Netcut
from farmctl.testbeds.local.settings import LocalSettings
from farmctl.testbeds.local.state import StateFolder
from farmctl.testbeds.local.verbs import Verbs

FOLDER_WATCH_S = 2.0
DESCRIPTORS = 65_536


def main(argv: list[str]) -> int:
    folder = StateFolder(Path(argv[0]))
    try:
        settings = LocalSettings.load(folder.settings)
        with folder.held(folder.lock) as ours:
            if not ours:
                return 0  # another supervisor has this farm
            asyncio.run(supervise(settings, folder))
    except Exception as error:
        tell_fatal(folder, _first(error))
        return 3
    return 0


async def supervise(settings: LocalSettings, folder: StateFolder) -> None:
    """Run the farm until SIGTERM, SIGINT, a shutdown call, or the loss of the state folder."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    _raise_descriptors()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    netcut = Netcut(settings.token)
    connector = aiohttp.TCPConnector(force_close=True, limit=0)  # a probe is a connection of its own
    async with aiohttp.ClientSession(connector=connector) as session:
        plane = Plane(settings, folder, session, say)
        server = ControlServer(plane, Verbs(plane, netcut), stop=stop.set)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(plane.run()),
                    group.create_task(server.run(folder.socket)),
                    group.create_task(_watch_folder(folder, stop)),
                ]
                await stop.wait()
                say("stopping", {})
                for task in tasks:
                    task.cancel()
        finally:
            await netcut.clear()
            shutil.rmtree(settings.work, ignore_errors=True)


def _raise_descriptors() -> None:
    """The proxy refuses callers by its soft limit of open files, which many machines set to 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


async def _watch_folder(folder: StateFolder, stop: asyncio.Event) -> None:
    inode = folder.lock.stat().st_ino
    while True:
        await asyncio.sleep(FOLDER_WATCH_S)
        try:
            same = folder.lock.stat().st_ino == inode
        except OSError:
            same = False
        if not same:
            say("state-folder-lost", {})
            stop.set()


def say(event: str, fields: Mapping[str, object]) -> None:
    """One JSON line on stdout, which is the supervisor's log; a full disk costs lines, not the farm."""
    with suppress(OSError):
        print(json.dumps({"event": event, "t": round(time.time(), 3), **fields}), flush=True)


def tell_fatal(folder: StateFolder, error: BaseException) -> None:
    hint = error.hint if isinstance(error, FarmctlError) else ""
    # What is no error of the farm is one of ours: it cannot be mended without its trace.
    trace = [] if isinstance(error, FarmctlError) else traceback.format_exception(error)
    say("fatal", {"error": str(error), "trace": trace})
    with suppress(OSError):
        folder.fatal.write_text(json.dumps({"message": str(error), "hint": hint}))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
