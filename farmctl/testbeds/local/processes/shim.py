"""Process 1 of a pod: runs one program and lets nothing of it outlive it, nor the supervisor.

``python -m farmctl.testbeds.local.processes.shim SUPERVISOR_PID PROGRAM ARG...`` passes SIGTERM and SIGINT on, adopts what
the program leaves behind, and kills it all when the program ends, when SIGUSR1 comes, or when the supervisor dies.
Only the standard library is imported: there is one shim a pod.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

from farmctl.testbeds.local.processes import proctree

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _kill_all(*_: object) -> None:
    proctree.kill_below(os.getpid())


def main(argv: list[str]) -> int:
    supervisor, program = int(argv[0]), argv[1:]
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGUSR1, _kill_all)
    prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
    if os.getppid() != supervisor:
        return 137  # it died before it could be watched
    try:
        # Should the shim itself be killed, the program goes with it.
        child = subprocess.Popen(program, preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL))  # noqa: PLW1509
    except OSError as error:
        print(f"cannot start {program[0]}: {error}", file=sys.stderr, flush=True)
        return 127

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    return _reap(child.pid)


def _reap(main_pid: int) -> int:
    """Wait for every child; the program's own exit code is the answer (128 + signal, as a shell says it)."""
    code = 0
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == main_pid:
            exited = os.waitstatus_to_exitcode(status)
            code = exited if exited >= 0 else 128 - exited
            _kill_all()
        elif proctree.stat(main_pid) is None:
            _kill_all()  # a straggler forked while the rest was dying


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
