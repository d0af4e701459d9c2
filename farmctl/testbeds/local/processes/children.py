"""Starts programs under a shim and ends them: SIGTERM to the program, or SIGKILL to everything it ever started."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from farmctl.testbeds.local.processes import proctree
from farmctl.testbeds.local.processes.proctree import TOKEN_VARIABLE
from farmctl.testbeds.log_files import Logs

# What a child needs of our own environment; it reads no secret of the user's.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")


class Child:
    """One program and all that it starts; ``pid`` is the shim's."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        """SIGTERM to the program alone."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def program(self) -> int | None:
        """The program's own pid: the shim's first child."""
        children = [one for pid in proctree.below(self.pid) if (one := proctree.stat(pid))]
        found = [(one.started_ticks, one.pid) for one in children if one.parent == self.pid]
        return min(found)[1] if found else None

    def freeze(self) -> list[int]:
        return proctree.stop_below(self.pid)

    def thaw(self) -> None:
        proctree.send(proctree.below(self.pid), signal.SIGCONT)

    def started(self) -> list[int]:
        """What the program itself started (in a pod: Chrome's processes)."""
        program = self.program()
        return [pid for pid in proctree.below(self.pid) if pid != program]

    async def kill(self) -> None:
        """SIGKILL all at once; returns when every process is gone."""
        if self.exit_code is not None:
            return
        doomed = proctree.kill_below(self.pid)
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)  # and whatever slipped in, then the shim ends by itself
        await self._process.wait()
        await gone(doomed)


async def gone(pids: Sequence[int], timeout_s: float = 10.0) -> None:
    """Return when none of the processes runs any more. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while proctree.alive(pids):
            await asyncio.sleep(0.01)


async def start(
    command: Sequence[str], *, env: Mapping[str, str], token: str, log: str, logs: Logs, cwd: str = "/"
) -> Child:
    """Raises OSError when there is no room for another process or for its log."""
    inherited = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
    with logs.open(log) as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "farmctl.testbeds.local.processes.shim",
            str(os.getpid()),
            *command,
            env={**inherited, **env, TOKEN_VARIABLE: token},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            start_new_session=True,
        )
    return Child(process)
