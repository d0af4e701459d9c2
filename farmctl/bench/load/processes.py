"""Starting the programs of a benchmark on cores of their own, and reading what they used.

CPU time comes from the scheduler's own account (nanoseconds), summed over the threads of the process;
where the kernel has none, from the ticks in /proc/PID/stat.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from farmctl.bench.load.plans import Plan
from farmctl.errors import StageError

START_LIMIT_S = 20.0
END_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the proxy under test runs, and where everything that loads it does."""

    proxy: frozenset[int]
    generators: frozenset[int]

    @classmethod
    def split(cls) -> "Cores":
        """Give the proxy the last core of ours, the generators the others; with one core both share it."""
        mine = sorted(os.sched_getaffinity(0))
        return cls(frozenset(mine[-1:]), frozenset(mine[:-1] or mine))


def dying_with_us() -> list[str]:
    """What a program is started through so that it ends with this process, however that dies."""
    return ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []


def start(
    command: Sequence[str],
    cores: frozenset[int],
    *,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> subprocess.Popen[str]:
    """Start a program pinned to ``cores``; stdout goes to ``log``, else into a pipe."""
    with contextlib.ExitStack() as stack:
        out: Any = stack.enter_context(log.open("a")) if log else subprocess.PIPE
        process = subprocess.Popen(
            [*dying_with_us(), *command],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT if log else None,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # Ctrl-C is ours to handle: the measured programs are ended in order
        )
    # Pinned from outside: a preexec_fn would run Python between fork and exec.
    os.sched_setaffinity(process.pid, cores)
    return process


def end(process: subprocess.Popen[str], limit_s: float = END_LIMIT_S) -> None:
    """Ask the program to end, insist after the limit."""
    for stream in (process.stdin, process.stdout):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    process.terminate()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far; ``user_s`` and ``system_s`` have the resolution of a tick."""

    cpu_s: float
    user_s: float
    system_s: float
    rss_mib: float
    peak_rss_mib: float
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """Read /proc; raises StageError when the process is gone."""
        proc = Path(f"/proc/{pid}")
        try:
            fields = (proc / "stat").read_text().rpartition(")")[2].split()
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
            descriptors = sum(1 for _ in (proc / "fd").iterdir())
            exact_s = sum(
                int((task / "schedstat").read_text().split()[0]) for task in (proc / "task").iterdir()
            )
        except (OSError, IndexError) as error:
            raise StageError(f"process {pid} of the benchmark is gone: {error}") from error
        ticks = os.sysconf("SC_CLK_TCK")
        user_s, system_s = int(fields[11]) / ticks, int(fields[12]) / ticks
        return cls(
            cpu_s=exact_s / 1e9 or user_s + system_s,
            user_s=user_s,
            system_s=system_s,
            rss_mib=int(status["VmRSS"].split()[0]) / 1024,
            peak_rss_mib=int(status["VmHWM"].split()[0]) / 1024,
            descriptors=descriptors,
        )


class FakeFarm:
    """The fake pods and their control plane, as a process. A context manager."""

    def __init__(self, cores: Cores, *, pods: int, late_s: float = 1.0, listed: str = "") -> None:
        """``listed``: no fake pods, but a control plane that lists this real one (host:port/ns/name/uid)."""
        command = [sys.executable, "-m", "farmctl.bench.fakes.fake_farm", str(pods), str(late_s), listed]
        self.pods = pods
        self._process = start(command, cores.generators)
        ports = self._answer()
        self.pod_port: int = ports["pod_port"]
        self.api_port: int = ports["api_port"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise StageError("the fake farm ended by itself", hint="see its message above")
        words: dict[str, Any] = json.loads(line)
        return words

    def tell(self, do: str, **words: Any) -> dict[str, Any]:
        """Send one command and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)


def call(plan: Plan, cores: Cores) -> dict[str, Any]:
    """Run one crowd of callers to its end; return its figures."""
    return finish_call(begin_call(plan, cores), plan)


def begin_call(plan: Plan, cores: Cores) -> subprocess.Popen[str]:
    process = start([sys.executable, "-m", "farmctl.bench.load.crowds"], cores.generators)
    assert process.stdin is not None
    process.stdin.write(plan.as_json())
    process.stdin.close()
    process.stdin = None
    return process


def finish_call(process: subprocess.Popen[str], plan: Plan) -> dict[str, Any]:
    try:
        output, _ = process.communicate(timeout=plan.seconds + 60)
    except subprocess.TimeoutExpired as error:
        end(process)
        raise StageError("the callers of the benchmark did not end") from error
    if process.returncode:
        raise StageError("the callers of the benchmark failed", hint="see their message above")
    words: dict[str, Any] = json.loads(output)
    return words


def wait_for(state: Callable[[], bool], what: str, limit_s: float = START_LIMIT_S) -> None:
    """Wait for a state of another process; raises StageError after the limit."""
    deadline = time.monotonic() + limit_s
    while not state():
        if time.monotonic() > deadline:
            raise StageError(f"after {limit_s:.0f} s it is still not so that {what}")
        time.sleep(0.02)


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # what is measured is on loopback


def http_ok(url: str) -> bool:
    """Say whether a GET is answered with 200 now."""
    try:
        with DIRECT.open(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextlib.contextmanager
def ending(process: subprocess.Popen[str], limit_s: float = END_LIMIT_S) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        end(process, limit_s)
