"""Processes as /proc shows them: whose child, whose testbed; and how to stop or kill a whole tree without a race.

A process counts as a testbed's only if it carries the testbed's token, in its environment or its command line.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TOKEN_VARIABLE = "FARMCTL_TESTBED"
PROC = Path("/proc")


class Stat(NamedTuple):
    pid: int
    state: str  # R, S, D, T, Z, ...
    parent: int
    started_ticks: int  # since boot; with the pid it names one process for ever


def stat(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    # The name in parentheses may hold anything, also ") R 1".
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(pid, fields[0], int(fields[1]), int(fields[19]))


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def everyone() -> list[Stat]:
    found = (stat(pid) for pid in _pids())
    return [one for one in found if one is not None]


def below(root: int) -> list[int]:
    """All living descendants of ``root``, parents before children; zombies are not counted."""
    children: defaultdict[int, list[Stat]] = defaultdict(list)
    for one in everyone():
        children[one.parent].append(one)
    found, queue = [], [root]
    while queue:
        for child in children[queue.pop(0)]:
            queue.append(child.pid)
            if child.state != "Z":
                found.append(child.pid)
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def stop_below(root: int) -> list[int]:
    """SIGSTOP every descendant until no new one appears: a stopped parent cannot fork."""
    stopped: set[int] = set()
    while fresh := [pid for pid in below(root) if pid not in stopped]:
        send(fresh, signal.SIGSTOP)
        stopped.update(fresh)
    return sorted(stopped)


def kill_below(root: int) -> list[int]:
    """SIGKILL every descendant, none escapes; they are reaped by their parents. Returns their pids."""
    doomed = stop_below(root)
    send(doomed, signal.SIGKILL)
    return doomed


def alive(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if (one := stat(pid)) is not None and one.state not in "ZX"]


def carriers(token: str) -> list[int]:
    """Pids of the processes that carry this token, this process left out."""
    return [pid for pid in _pids() if pid != os.getpid() and carries(pid, token)]


def carries(pid: int, token: str) -> bool:
    mark = f"{TOKEN_VARIABLE}={token}".encode()
    folder = PROC / str(pid)
    with suppress(OSError):
        if mark in (folder / "environ").read_bytes().split(b"\0"):
            return True
    with suppress(OSError):
        return token.encode() in (folder / "cmdline").read_bytes()
    return False


def kill_carriers(token: str) -> list[int]:
    """SIGKILL everything that carries the token; the pidfd makes sure that it is still the process looked at."""
    killed = []
    for pid in carriers(token):
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if carries(pid, token):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                killed.append(pid)
        except OSError:
            continue
        finally:
            os.close(handle)
    return killed
