#!/usr/bin/env python3
"""Runs the checks of .ci/run in two lanes, cluster and everything else, and cleans up whatever happens.

Every phase runs even when one before it failed, so that one run tells all; the exit code is 0 only when all passed.
A machine that cannot run a cluster fails: a check that did not run has not passed. Who wants the rest only says so with
FARMCTL_CI_KIND=skip, and the summary repeats it. Standard library only: it starts before anything is installed.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "ci"
FARMCTL = ".venv/bin/farmctl"
FARMS = ("local", "kind", "installed")  # each with a state folder of its own
STATE_PREFIX = "farmctl-ci-"
LIMIT_S = float(os.environ.get("FARMCTL_CI_LIMIT_S", "4950"))  # then cleaning up, below .ci/run's own
CLEANING_S = 150.0
DOCKERD, DOCKERD_S = "dockerd", 240.0
# With warm caches the cluster's lane is here after some 25 minutes, and a farm on Docker takes it four more.
ON_DOCKER_BEFORE_S = float(os.environ.get("FARMCTL_CI_DOCKER_BEFORE_S", "2400"))
POLL_S = 0.3
ENDING_S = 20.0
TAIL_LINES = 50
PRINTING = Lock()
SHOWN_TESTS = 3


@dataclass(frozen=True, slots=True)
class Result:
    """``problem`` is "" for what passed; ``beside``: it ran while others did, so its seconds are not to be added."""

    phase: str
    seconds: float
    problem: str = ""
    skipped: bool = False
    beside: bool = False


class Child:
    """One command in a process group of its own, its output in a file: no pipe that a left-over process keeps open."""

    def __init__(self, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self._log, self._shown = log, 0
        with log.open("wb") as out:
            # No session of its own: where the kernel groups processes by session, nice would count for nothing.
            self._process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1", **env}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip

    def follow(self, deadline: float, stopping: Event, *, show: bool) -> str:
        """Wait until it ends, or end it when time is up. Returns the problem, "" when it passed."""
        try:
            while self._process.poll() is None:
                if show:
                    self.show()
                if stopping.wait(POLL_S):
                    return "interrupted"
                if time.monotonic() > deadline:
                    return "time is up"
        finally:
            self.end()
        return f"exit code {self._process.returncode}" if self._process.returncode else ""

    def end(self) -> None:
        """End the command, and what it started and left in its group."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            if self._process.returncode is not None:
                return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)

    def show(self, last: str = "") -> None:
        """Print what is new in its output, and nothing of the other lane's between."""
        with self._log.open("rb") as log:
            log.seek(self._shown)
            new = log.read()
        self._shown += len(new)
        with PRINTING:
            sys.stdout.buffer.write(new + last.encode())
            sys.stdout.flush()


class Run:
    """The phases so far, the time that is left for others, and whether to stop."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.results: list[Result] = []
        self.stopping = Event()
        self._began = time.monotonic()
        self._deadline = self._began + limit_s

    def used_s(self) -> float:
        return time.monotonic() - self._began

    def phase(
        self, name: str, *command: str, env: Mapping[str, str] | None = None, beside: bool = False
    ) -> bool:
        """Run one command. One of the lane ``beside`` shows its output when it ends, so that lanes do not mix."""
        if self.stopping.is_set() or time.monotonic() > self._deadline:
            return self.note(Result(name, 0, "not run: time is up", beside=beside))
        print(f"\n=== {name}{' (beside)' * beside}: {' '.join(command)}", flush=True)
        began = time.monotonic()
        child = Child(list(command), env or {}, log_of(name))
        try:
            problem = child.follow(self._deadline, self.stopping, show=not beside)
        finally:
            child.show(f"=== the above is all of {name}\n" if beside else "")
        return self.note(Result(name, time.monotonic() - began, problem, beside=beside))

    def note(self, result: Result) -> bool:
        self.results.append(result)
        return not result.problem


def check_all(run: Run, state: Path) -> None:
    """The cluster's lane starts as soon as it can; lint, tests and the local farm go on beside it."""
    if not (run.phase("machine", ".ci/machine") and run.phase("setup", "scripts/setup")):
        return
    clear_the_dead(run)
    lane = Thread(target=check_kind, args=(run, state))
    lane.start()
    try:
        run.phase("lint", "make", "lint")
        run.phase("test", "make", "test")
        # The cluster's door has the usual port.
        end_to_end(run, "local", state, "--door 127.0.0.1:19222")
        run.phase("installed", "scripts/check_installed", env=of(state / "installed"))
        lane.join()
    except (KeyboardInterrupt, SystemExit):
        run.note(Result("run", 0, "interrupted"))
    finally:
        # In the good case the lane is over.
        run.stopping.set()
        lane.join()


def clear_the_dead(run: Run) -> None:
    """Take down what runs before this one could not, because they were killed: their cluster stands in our way."""
    for left in sorted(Path(tempfile.gettempdir()).glob(f"{STATE_PREFIX}*")):
        try:
            lock = held(left)
        except OSError:
            continue  # a run that goes on, one that has just ended, or another user's
        try:
            gone = [
                run.phase(f"left {left.name} {testbed}", FARMCTL, "down", env=of(left / testbed))
                for testbed in FARMS
            ]
            if (left / DOCKERD).exists():
                stopped = stop_docker(left / DOCKERD)
                run.results += stopped
                gone += [not each.problem for each in stopped]
            if all(gone):
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(lock)


def held(state: Path) -> int:
    """Lock the state folder of a run for as long as the process lives. Raises BlockingIOError when another has it."""
    lock = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    return lock


def check_kind(run: Run, state: Path) -> None:
    """The engines, then the cluster on the one that farmctl takes, then a farm on Docker where that is another."""
    if os.environ.get("FARMCTL_CI_KIND") == "skip":
        why = "SKIPPED: FARMCTL_CI_KIND=skip says so; nothing of the kind testbed was tested"
        run.note(Result("e2e kind", 0, why, skipped=True))
        return
    folder = state / DOCKERD
    engines = engines_for(run, folder)
    try:
        if engines:
            run.phase("engines", "make", "engines", env=engines, beside=True)
        if has_images(run, state):
            end_to_end(run, "kind", state, "", beside=True)
            if "DOCKER_HOST" in engines:
                farm_on_docker(run, state, engines)
    finally:
        if folder.exists():
            run.results += stop_docker(folder)


def has_images(run: Run, state: Path) -> bool:
    if not run.phase("kind possible", FARMCTL, "doctor", "--testbed", "kind", env=of(state), beside=True):
        return run.note(Result("e2e kind", 0, "not run: this machine lacks what `kind possible` names above"))
    if not run.phase("images", "nice", "-n", "15", FARMCTL, "images", "build", beside=True):
        return run.note(Result("e2e kind", 0, "not run: its images could not be built"))
    return True


def engines_for(run: Run, folder: Path) -> dict[str, str]:
    """The environment in which engines answer, {} where none can: a Docker is started where the machine has none."""
    podman = ["podman"] if shutil.which("podman") else []
    try:
        done = subprocess.run([".ci/dockerd", "start", str(folder)], cwd=ROOT, capture_output=True, text=True,
                              timeout=DOCKERD_S, check=False)  # fmt: skip
        why = "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or "it did not start"
    except (subprocess.TimeoutExpired, OSError) as error:
        why = str(error)
    if why:
        run.note(Result("engine docker", 0, f"SKIPPED: nothing was tried on Docker: {why}", skipped=True))
        return {"FARMCTL_TEST_ENGINES": "podman"} if podman else {}
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return {**env, "FARMCTL_TEST_ENGINES": " ".join(["docker", *podman])}


def farm_on_docker(run: Run, state: Path, env: Mapping[str, str]) -> bool:
    """On a Docker that was started for this run: on the machine's own the cluster has been."""
    if run.used_s() > ON_DOCKER_BEFORE_S:
        why = f"SKIPPED: tried only where all before it took less than {ON_DOCKER_BEFORE_S / 60:.0f} minutes"
        return run.note(Result("farm on docker", 0, why, skipped=True))
    return run.phase("farm on docker", ".ci/on_docker", env={**env, **of(state / "docker")}, beside=True)


def stop_docker(folder: Path) -> list[Result]:
    """Whatever still runs in it goes with it."""
    stopping = Run(CLEANING_S)
    stopping.phase("docker stopped", ".ci/dockerd", "stop", str(folder), beside=True)
    return stopping.results


def end_to_end(run: Run, testbed: str, state: Path, args: str, *, beside: bool = False) -> bool:
    # Real browsers on a shared machine: what failed is tried once more, and the summary names it.
    env = {**of(state / testbed), "RETRY": "1", "FARMCTL_E2E_LOGS": str(LOGS / f"e2e-{testbed}")}
    command = ("make", "e2e", f"TESTBED={testbed}", f"ARGS={args}")
    return run.phase(f"e2e {testbed}", *command, env=env, beside=beside)


def of(state: Path) -> dict[str, str]:
    """A state folder of this run's own: a farm that somebody has up here is neither used nor taken down."""
    return {"FARMCTL_STATE": str(state)}


def log_of(phase: str) -> Path:
    return LOGS / f"{phase.replace(' ', '-')}.log"


def clean(run: Run, state: Path) -> None:
    """Take the farms of this run down, whatever is left of them, and bound the caches. A remnant is a failure."""
    if not (ROOT / FARMCTL).exists():
        return
    cleaning = Run(CLEANING_S)
    for testbed in FARMS:
        cleaning.phase(f"down {testbed}", FARMCTL, "down", env=of(state / testbed))
    if log_of("images").exists():
        # Not with our state folder: the images of a farm that somebody has up here are in use.
        cleaning.phase("caches bounded", FARMCTL, "images", "prune")
    run.results += cleaning.results


def retried() -> list[str]:
    """Tests that passed, or failed, only at a second try, and why the first one failed."""
    texts = [log.read_text(errors="replace") for log in sorted(LOGS.glob("e2e-*.log"))]
    found = [
        (test, re.search(rf"^why {re.escape(test)}: (.*)$", text, flags=re.MULTILINE))
        for text in texts
        for test in re.findall(r"^RERUN (\S+::.+)$", text, flags=re.MULTILINE)
    ]
    return [f"{test}: {why[1]}" if why else test for test, why in found]


def explain(results: list[Result]) -> None:
    """The end of each failed phase's log, and of what its first failed tests left."""
    for result in results:
        log = log_of(result.phase)
        if not result.problem or result.skipped or not log.exists():
            continue
        print(f"\n--- {result.phase}: {result.problem}; the last of {log}")
        print(tail(log))
        left = sorted((log.with_suffix("") / "exported").glob("*/proxy.log"))
        for proxy in left[:SHOWN_TESTS]:
            print(f"\n--- {proxy}")
            print(tail(proxy))


def tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-TAIL_LINES:])


def summarise(results: list[Result], again: list[str], seconds: float) -> str:
    lines = ["", f"{'PHASE':18} {'SECONDS':>8}  RESULT"]
    for each in results:
        said = each.problem or "passed"
        lines.append(f"{each.phase:18} {each.seconds:8.0f}  {said}{' (beside others)' * each.beside}")
    lines.append(f"{'all':18} {seconds:8.0f}")
    lines += [f"tried a second time: {test}" for test in again]
    return "\n".join(lines)


def main() -> int:
    began, was_set_up = time.monotonic(), (ROOT / FARMCTL).exists()
    signal.signal(signal.SIGTERM, interrupted)
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    run = Run()
    with tempfile.TemporaryDirectory(prefix=STATE_PREFIX) as state:
        held(Path(state))
        try:
            check_all(run, Path(state))
        finally:
            clean(run, Path(state))
    failed = [result for result in run.results if result.problem and not result.skipped]
    explain(run.results)
    print(summarise(run.results, retried(), time.monotonic() - began), flush=True)
    if failed:
        print(f"FAILED: {', '.join(result.phase for result in failed)}; logs: {LOGS}", flush=True)
        return 1
    # What a failed run leaves is there to be looked at, and a checkout that somebody works in is left as it was.
    if not was_set_up:
        subprocess.run(["make", "-s", "clean"], cwd=ROOT, check=False)
    return 0


def interrupted(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(130)


if __name__ == "__main__":
    sys.exit(main())
