"""The uids that Chromes run under: what one Chrome leaves behind belongs to its uid, and goes with it.

The rule: a uid has one Chrome at a time, and the next one only when no process and no file of it is left. Where the
agent may not change uids there is one, its own: then one Chrome waits for the end of the other.
"""

import asyncio
import errno
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farmagent.errors import ChromeStartError

LOCK_NAME = (
    "\0farmagent-uid-{}"  # an abstract socket: the kernel frees it with its process, whatever ends that
)
PROC = Path("/proc")
KILL_TRIES, KILL_PAUSE_S = (
    200,
    0.02,
)  # a killed process is gone within milliseconds; a machine that swaps needs more


@dataclass(frozen=True, slots=True)
class ChromeUser:
    uid: int
    gid: int


class Uids:
    """``span``: the uids to take from, one a Chrome; None: the agent's own for all, one Chrome after the other."""

    def __init__(self, span: range | None) -> None:
        self._span = span
        self._own = ChromeUser(os.geteuid(), os.getegid())
        self._alone = asyncio.Lock()
        self._locks: dict[int, socket.socket] = {}

    @property
    def is_shared(self) -> bool:
        return self._span is None

    async def take(self) -> ChromeUser:
        """Wait for one, where there is only one. Raises ChromeStartError when none of the span is free."""
        if self._span is None:
            await self._alone.acquire()
            return self._own
        # from anywhere in the span: pods of one node share the kernel's limits a uid (inotify instances, say)
        first = random.randrange(len(self._span))
        used = await asyncio.to_thread(uids_in_use)
        for index in range(len(self._span)):
            uid = self._span[(first + index) % len(self._span)]
            if uid not in used and self.lock(uid):
                return ChromeUser(uid, uid)
        raise ChromeStartError(
            f"none of the uids {self._span[0]} to {self._span[-1]} is free; set FARMAGENT_CHROME_UIDS"
        )

    def lock(self, uid: int) -> bool:
        """Take this uid of the span, unless any agent of this machine (of this network namespace) has it."""
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind(LOCK_NAME.format(uid))
        except OSError as error:
            lock.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._locks[uid] = lock
        return True

    def give_back(self, user: ChromeUser) -> None:
        """Call it when nothing of this Chrome is left."""
        if self._span is None:
            self._alone.release()
        else:
            self._locks.pop(user.uid).close()

    def end_processes(self, user: ChromeUser) -> list[int]:
        """Kill every process that the Chrome may have left, in whatever session; returns those that did not go.
        Blocks: call it in a thread.

        Never one that this agent did not start: where its /proc shows more than its own pod (on a machine that has a
        cluster's nodes, say), another agent that this one cannot know of may have taken the same uid.
        """
        return end(descendants if self._span is None else lambda: descendants(user.uid))


def end(find: Callable[[], list[int]]) -> list[int]:
    """SIGKILL for all that ``find`` finds, until it finds none; returns what it still found at last."""
    for _ in range(KILL_TRIES):
        found = find()
        if not found:
            return []
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILL_PAUSE_S)
    return find()


def uids_in_use() -> set[int]:
    return {uid for _, _, uids in _processes() for uid in uids}


def descendants(uid: int | None = None) -> list[int]:
    """Living processes below this one, orphans among them, because the agent is their reaper; with ``uid`` only those
    whose real, effective or saved uid it is.
    """
    children: dict[int, list[int]] = {}
    theirs: dict[int, set[int]] = {}
    for pid, parent, uids in _processes():
        children.setdefault(parent, []).append(pid)
        theirs[pid] = uids
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return [pid for pid in found if uid is None or uid in theirs[pid]]


def _processes() -> Iterator[tuple[int, int, set[int]]]:
    """(pid, parent, uids) of each; the owner of /proc/PID is no witness (root, for one that is not dumpable)."""
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, KeyError, ValueError, IndexError):
            lines = (entry / "status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines if ":" in line)
            if not fields["State"].strip().startswith(("Z", "X")):
                yield int(entry.name), int(fields["PPid"]), {int(word) for word in fields["Uid"].split()[:3]}
