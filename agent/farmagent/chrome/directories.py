"""Chrome's directories: everything that one Chrome writes is below one fresh directory, gone after it.

The rule: no two Chromes ever share a directory, and nothing that an earlier agent left below the work
directory survives this one's start.
"""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farmagent.chrome.uids import ChromeUser
from farmagent.errors import AgentError

PREFIX = "c-"
ALONE = b"alone\n"
# Chrome binds TMPDIR/org.chromium.Chromium.XXXXXX/SingletonSocket; a UNIX socket's path has at most 107 bytes.
SOCKET_TAIL = len("/org.chromium.Chromium.XXXXXX/SingletonSocket")
SOCKET_PATH_LIMIT = 107
REMOVE_TRIES = 20
REMOVE_PAUSE_S = 0.25  # Chrome's last children may still write for a moment after the kill


@dataclass(frozen=True, slots=True)
class ChromeDirectories:
    root: Path

    @property
    def profile(self) -> Path:
        return self.root / "profile"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def downloads(self) -> Path:
        return self.home / "Downloads"

    @property
    def temporary(self) -> Path:
        return self.root / "t"

    @property
    def temporary_name(self) -> str:
        """TMPDIR as Chrome is told it: by way of its working directory (the root) where the path is too long."""
        if len(str(self.temporary)) + SOCKET_TAIL <= SOCKET_PATH_LIMIT:
            return str(self.temporary)
        return f"/proc/self/cwd/{self.temporary.name}"

    def environment(self) -> dict[str, str]:
        """What keeps Chrome (and what it starts) from writing or asking anywhere else."""
        home = str(self.home)
        return {
            "HOME": home,
            "TMPDIR": self.temporary_name,
            "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_CACHE_HOME": f"{home}/.cache",
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_RUNTIME_DIR": str(self.temporary),
            # "disabled:" also stops libdbus from starting a bus daemon that would outlive Chrome
            "DBUS_SESSION_BUS_ADDRESS": "disabled:",
            "DBUS_SYSTEM_BUS_ADDRESS": "disabled:",
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **{
                name: os.environ[name] for name in ("TZ", "LANGUAGE", "FONTCONFIG_PATH") if name in os.environ
            },
        }


class WorkDirectory:
    """The parent of all ChromeDirectories of one agent, held by a lock while the agent lives. ``is_alone``: it held
    nothing of anybody else when an agent first took it, so that all in it may be removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path / "lock"
        self.is_alone = False
        self._lock: int | None = None

    def open(self) -> None:
        """Create it, lock it, wipe what an earlier agent left. Raises AgentError."""
        try:
            self.path.mkdir(mode=0o711, parents=True, exist_ok=True)
            # Chrome's own uid must be able to pass through, and to list nothing
            if self.path.stat().st_uid == os.geteuid():  # the root of a volume may be another's, open to all
                self.path.chmod(0o711)
            was_empty = not any(self.path.iterdir())
            self._lock = os.open(self.lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if was_empty:
                os.write(self._lock, ALONE)  # said to the agent that follows one that was killed
            self.is_alone = os.pread(self._lock, len(ALONE), 0) == ALONE
        except BlockingIOError as error:
            raise AgentError(
                f"{self.path} is in use by another agent: give each its own FARMAGENT_WORK_DIR"
            ) from error
        except OSError as error:
            raise AgentError(
                f"the work directory {self.path} cannot be made: {error}; set FARMAGENT_WORK_DIR"
            ) from error
        for old in self.path.glob(PREFIX + "*"):
            remove(old)

    def fresh(self, user: ChromeUser) -> ChromeDirectories:
        """Nobody but this user may enter them. Raises OSError (a full disk, say)."""
        made = ChromeDirectories(Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.path)))
        for path in (made.profile, made.home, made.downloads, made.temporary):
            path.mkdir(mode=0o700)
        if user.uid != os.geteuid():
            for path in (made.root, made.profile, made.home, made.downloads, made.temporary):
                os.chown(path, user.uid, user.gid)
        return made

    def close(self) -> None:
        """Remove everything, the lock last."""
        for old in self.path.glob(PREFIX + "*"):
            remove(old)
        if self._lock is not None:
            self.lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None
        with suppress(OSError):  # a mounted volume, or not empty: not ours to remove
            self.path.rmdir()


def remove(path: Path) -> bool:
    """Remove a tree, trying again while something still writes into it. Blocks: call it in a thread."""
    for _ in range(REMOVE_TRIES):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return True
        time.sleep(REMOVE_PAUSE_S)
    return False
