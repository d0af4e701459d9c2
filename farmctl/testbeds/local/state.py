"""The state folder of a local testbed: private to its owner, and everything that a later ``up`` or ``down`` needs
to mend or remove what an earlier one left.

What is not ours in the folder is never touched.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from farmctl.errors import StageError
from farmctl.testbeds.log_files import Logs
from farmctl.testbeds.state_folders import STATE_VARIABLE, explained

PROXY_LOG = "proxy"
SUPERVISOR_LOG = "supervisor"
SOCKET_PATH_LIMIT = 107  # sockaddr_un.sun_path, less its NUL


class StateFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.up_lock = path / "up.lock"
        self.socket = path / "control.sock"
        self.settings = path / "settings.json"
        self.fatal = path / "fatal.json"
        self.agent_key = path / "agent.key"
        self.logs = Logs(path / "logs")
        self.pod_logs = Logs(path / "logs" / "pods")

    def make(self) -> None:
        """Raises StageError when the folder is another user's, cannot be written or is too deep for a socket."""
        if len(os.fsencode(self.socket)) > SOCKET_PATH_LIMIT:
            raise StageError(
                f"the state folder's path is too long for a socket: {self.path}",
                hint=f"set {STATE_VARIABLE} to a shorter path",
            )
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.path.stat().st_uid != os.geteuid():
                raise StageError(
                    f"the state folder {self.path} belongs to another user",
                    hint=f"set {STATE_VARIABLE} to a folder of your own",
                )
            self.path.chmod(0o700)
            self.pod_logs.folder.mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        return self.path.is_dir()

    @contextmanager
    def held(self, lock: Path) -> Iterator[bool]:
        """Try to take the lock; False when another process has it. It goes with the process, however that ends."""
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def supervised(self) -> bool:
        """Whether a supervisor runs on this folder."""
        if not self.lock.exists():
            return False
        with self.held(self.lock) as ours:
            return not ours

    def bound_logs(self) -> None:
        with suppress(OSError):  # a full disk must not end the farm
            self.logs.bound()
            self.pod_logs.bound()

    def remove(self, *, keep_up_lock: bool = False) -> None:
        """Remove our files, and the folder if nothing else is in it."""
        for file in (self.socket, self.settings, self.fatal, self.agent_key, self.lock):
            file.unlink(missing_ok=True)
        if not keep_up_lock:
            self.up_lock.unlink(missing_ok=True)
        shutil.rmtree(self.path / "logs", ignore_errors=True)
        with suppress(OSError):
            self.path.rmdir()
