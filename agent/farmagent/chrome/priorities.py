"""Start a spare Chrome below everything else, and lift it once it is the main one.

The rule: a priority is only lowered where this process may raise it again.
"""

import os
import resource
from contextlib import suppress
from pathlib import Path

LOW_NICE = 15
CAP_SYS_NICE = 23


def can_lift(status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process may bring another's nice value back to 0 (setpriority(2))."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
    if soft == resource.RLIM_INFINITY or soft >= 20:
        return True
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> CAP_SYS_NICE & 1)


def lower(pid: int) -> None:
    """For a process that has no children yet: they inherit it."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, LOW_NICE)


def lift(group: int) -> None:
    """All processes of the group, all their threads."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, group, 0)
