"""How much a Chrome's processes have worked, as /proc counts it: tells a busy one from a frozen one."""

import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
STOPPED = "TtZX"  # proc(5): stopped, traced, zombie, dead
TICKS = os.sysconf("SC_CLK_TCK")


def worked_s(session: int) -> float | None:
    """CPU-seconds of the session's living processes, and the seconds that its leader's main thread waited for a CPU.
    None while the leader is stopped, or gone. A few milliseconds: it reads all of /proc.
    """
    total = 0.0
    led = False
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            state, sid, user, system = fields[0], fields[3], fields[11], fields[12]
            if int(sid) != session:
                continue
            if int(entry.name) == session:
                if state in STOPPED:
                    return None
                led = True
                total += _waited_s(session)
            total += (int(user) + int(system)) / TICKS
    return total if led else None


def _waited_s(pid: int) -> float:
    """Of the main thread, on a run queue (sched-stats.rst); 0 where the kernel does not count it."""
    with suppress(OSError, ValueError, IndexError):
        return int((PROC / str(pid) / "schedstat").read_text().split()[1]) / 1e9
    return 0.0
