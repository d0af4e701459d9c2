"""One Chrome process: started, watched, killed. Its tree lives in a session of its own and dies as a whole.

The rule: exactly one exit is seen and reaped per process, its group is killed before it is reaped (so that no
process id can have been given away), and a Chrome never outlives the agent.
"""

import asyncio
import os
import re
import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from farmagent.chrome import priorities, proctimes
from farmagent.chrome.binaries import Binary
from farmagent.chrome.directories import ChromeDirectories
from farmagent.chrome.flags import command_line
from farmagent.chrome.uids import ChromeUser
from farmagent.errors import ChromeStartError

LISTENING = re.compile(rb"DevTools listening on (ws://[^\s/]+:(\d+)/\S+)")
SAID_BYTES = 4096  # of Chrome's last words, for the log line of a start that failed
RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; Chrome must not inherit that


@dataclass(frozen=True, slots=True)
class Start:
    """What one Chrome is started with beside its directories: ``flags`` come last on its command line, so that they
    win, ``environment`` over the usual one. ``low``: below every other priority.
    """

    user: ChromeUser
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    low: bool = False


class ChromeProcess:
    """``ws_url`` and ``port`` are known once ``listening`` returned."""

    def __init__(self, pid: int, directories: ChromeDirectories, said_fd: int) -> None:
        self.pid = pid
        self.directories = directories
        self.ws_url = ""
        self.port = 0
        self.exited = asyncio.Event()
        self.returncode: int | None = None  # as subprocess has it: negative for a signal
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(pid)
        self._said_fd = said_fd
        self._said: deque[bytes] = deque(maxlen=8)
        self._line = b""
        self._said_where = asyncio.Event()
        os.set_blocking(said_fd, False)
        self._loop.add_reader(self._pidfd, self._reap)
        self._loop.add_reader(said_fd, self._read)

    async def listening(self, *, timeout_s: float) -> None:
        """Wait until Chrome says where it listens. Raises ChromeStartError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._said_where.wait()
        except TimeoutError as error:
            raise ChromeStartError(
                f"no debugging port within {timeout_s:g} s; {self.last_words()}"
            ) from error
        if not self.port:
            await self.exited.wait()
            raise ChromeStartError(f"exit code {self.returncode} at start; {self.last_words()}")

    def last_words(self) -> str:
        said = (b"".join(self._said) + self._line).decode(errors="replace").strip()
        return f"Chrome said: {said[-SAID_BYTES:]}" if said else "Chrome said nothing"

    def lift(self) -> None:
        """From a spare's priority to the usual one."""
        if not self.exited.is_set():
            priorities.lift(self.pid)

    def worked_s(self) -> float | None:
        """CPU-seconds of the tree's living processes, and what the main thread waited for a CPU (a starved Chrome is
        no frozen one); None while the main process is stopped, or gone.
        """
        return None if self.exited.is_set() else proctimes.worked_s(self.pid)

    def kill(self) -> None:
        """SIGKILL for the whole tree; ``exited`` is set soon after."""
        if not self.exited.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.kill()  # what is left of the tree, while the zombie still holds the group's id
        with suppress(ChildProcessError):
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        os.close(self._pidfd)
        self._close_said()
        self.exited.set()
        self._said_where.set()

    def _read(self) -> None:
        try:
            data = os.read(self._said_fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_said()
            return
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[-SAID_BYTES:]
        for line in lines:
            self._said.append(line[-512:] + b"\n")
            found = None if self.port else LISTENING.search(line)
            if found is not None:
                self.ws_url, self.port = found[1].decode("ascii"), int(found[2])
                self._said_where.set()

    def _close_said(self) -> None:
        if self._said_fd >= 0:
            self._loop.remove_reader(self._said_fd)
            os.close(self._said_fd)
            self._said_fd = -1


def launch(binary: Binary, directories: ChromeDirectories, start: Start) -> ChromeProcess:
    """Start Chrome on these directories. Raises ChromeStartError. Call it in the main thread: the parent-death
    signal follows the thread that forked.
    """
    # posix_spawn has no working directory of its own to give
    arguments = [
        "env",
        "-C",
        str(directories.root),
        *binary.prefix(start.user),
        *command_line(binary, directories, start.flags),
    ]
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawnp(
            arguments[0],
            arguments,
            directories.environment() | start.environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, write_fd, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=RESET_SIGNALS,
        )
    except OSError as error:
        os.close(read_fd)
        raise ChromeStartError(f"Chrome cannot be started: {error}") from error
    finally:
        os.close(write_fd)
    if start.low:
        priorities.lower(pid)
    return ChromeProcess(pid, directories, read_fd)
