"""PID 1's duty: reap the orphans that are handed to this process, and nobody else's children.

The rule: only a process that this agent did not start itself is reaped here. Chrome's own exits belong to
farmagent.chrome.processes; a peek (WNOWAIT) tells them apart without taking them.
"""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def adopt_orphans() -> bool:
    """Make this process the reaper of its whole tree where it is not PID 1 already. False if that fails."""
    if os.getpid() == 1:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap_orphans(is_ours: Callable[[int], bool]) -> int:
    """Reap what has exited and is not ours; returns how many. A child of ours at the head of the queue ends
    the pass: its owner reaps it in this same turn of the loop and asks again.
    """
    count = 0
    while True:
        try:
            seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return count
        if seen is None or is_ours(seen.si_pid):
            return count
        try:
            os.waitpid(seen.si_pid, os.WNOHANG)
        except ChildProcessError:
            return count
        count += 1


def watch(loop: asyncio.AbstractEventLoop, is_ours: Callable[[int], bool]) -> None:
    """Reap at every SIGCHLD from now on."""
    loop.add_signal_handler(signal.SIGCHLD, reap_orphans, is_ours)
