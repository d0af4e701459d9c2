#!/usr/bin/env python3
"""Runs the checks of .ci/run one after the other, with the slow builds beside them, and cleans up whatever happens.

Every phase runs even when one before it failed, so that one run tells all; the exit code is 0 only when all passed.
A machine that cannot run a cluster fails: a check that did not run has not passed. Who wants the rest only says so with
FARMCTL_CI_KIND=skip, and the summary repeats it. Standard library only: it starts before anything is installed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "ci"
FARMCTL = ".venv/bin/farmctl"
LIMIT_S = float(os.environ.get("FARMCTL_CI_LIMIT_S", "4950"))  # then cleaning up, below .ci/run's own
CLEANING_S = 150.0
POLL_S = 0.3
ENDING_S = 20.0
TAIL_LINES = 50
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

    def __init__(self, phase: str, command: list[str], env: Mapping[str, str], logs: Path = LOGS) -> None:
        self.phase, self.log = phase, logs / f"{phase.replace(' ', '-')}.log"
        self.began = time.monotonic()
        self._shown = 0
        with self.log.open("wb") as out:
            # No session of its own: where the kernel groups processes by session, nice would count for nothing.
            self._process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1", **env}, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip

    def follow(self, deadline: float) -> str:
        """Show the output until it ends; ended when ``deadline`` passes. Returns the problem, "" when it passed."""
        try:
            while self._process.poll() is None:
                self._show()
                if time.monotonic() > deadline:
                    self.end()
                    return "time is up"
                time.sleep(POLL_S)
        finally:
            self.end()
            self._show()
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

    def _show(self) -> None:
        with self.log.open("rb") as log:
            log.seek(self._shown)
            new = log.read()
        self._shown += len(new)
        sys.stdout.buffer.write(new)
        sys.stdout.flush()


class Run:
    """The phases so far, and the time that is left for others."""

    def __init__(self, limit_s: float = LIMIT_S, logs: Path = LOGS) -> None:
        self.results: list[Result] = []
        self._logs = logs
        self._deadline = time.monotonic() + limit_s
        self._beside: list[Child] = []

    def phase(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> bool:
        if time.monotonic() > self._deadline:
            return self._note(Result(name, 0, "not run: time is up"))
        print(f"\n=== {name}: {' '.join(command)}", flush=True)
        child = Child(name, list(command), env or {}, self._logs)
        problem = child.follow(self._deadline)
        return self._note(Result(name, time.monotonic() - child.began, problem))

    def beside(self, name: str, *command: str) -> Child:
        """Start it niced and go on."""
        print(f"\n=== {name}, beside what follows: {' '.join(command)}", flush=True)
        child = Child(name, ["nice", "-n", "15", *command], {}, self._logs)
        self._beside.append(child)
        return child

    def join(self, child: Child) -> bool:
        print(f"\n=== waiting for {child.phase}", flush=True)
        problem = child.follow(self._deadline)
        return self._note(Result(child.phase, time.monotonic() - child.began, problem, beside=True))

    def skip(self, name: str, why: str) -> None:
        self._note(Result(name, 0, why, skipped=True))

    def fail(self, name: str, why: str) -> None:
        self._note(Result(name, 0, why))

    def end(self) -> None:
        for child in self._beside:
            child.end()

    def _note(self, result: Result) -> bool:
        self.results.append(result)
        return not result.problem


def check_all(run: Run, env: Mapping[str, str]) -> None:
    """The order: what the cluster needs starts first and goes on beside lint, tests and the local farm."""
    if not (run.phase("machine", ".ci/machine") and run.phase("setup", "scripts/setup")):
        return
    skipping = os.environ.get("FARMCTL_CI_KIND") == "skip"
    able = not skipping and run.phase("kind possible", FARMCTL, "doctor", "--testbed", "kind", env=env)
    images = run.beside("images", FARMCTL, "images", "build") if able else None
    run.phase("lint", "make", "lint")
    run.phase("test", "make", "test")
    end_to_end(run, "local", env)
    if skipping:
        run.skip("e2e kind", "SKIPPED: FARMCTL_CI_KIND=skip says so; nothing of the kind testbed was tested")
    elif images is None:
        run.fail("e2e kind", "not run: this machine lacks what `kind possible` names above")
    elif run.join(images):
        end_to_end(run, "kind", env)
    else:
        run.fail("e2e kind", "not run: its images could not be built")


def end_to_end(run: Run, testbed: str, env: Mapping[str, str]) -> bool:
    # Real browsers on a shared machine: what failed is tried once more, and the summary names it.
    env = {**env, "RETRY": "1", "FARMCTL_E2E_LOGS": str(LOGS / f"e2e-{testbed}")}
    return run.phase(f"e2e {testbed}", "make", "e2e", f"TESTBED={testbed}", env=env)


def clean(run: Run, env: Mapping[str, str]) -> None:
    """Take the farm of this run down, whatever is left of it, and bound the caches. A remnant is a failure."""
    run.end()
    if not (ROOT / FARMCTL).exists():
        return
    cleaning = Run(CLEANING_S)
    cleaning.phase("farm taken down", FARMCTL, "down", env=env)
    if any(result.phase == "images" for result in run.results):
        # Not with our state folder: the images of a farm that somebody has up here are in use.
        cleaning.phase("caches bounded", FARMCTL, "images", "prune")
    run.results += cleaning.results


def retried(logs: Path) -> list[str]:
    """Tests that passed, or failed, only at a second try."""
    found = [
        re.findall(r"^RERUN (\S+)", log.read_text(errors="replace"), flags=re.MULTILINE)
        for log in sorted(logs.glob("e2e-*.log"))
    ]
    return [test for tests in found for test in tests]


def explain(results: list[Result], logs: Path, say: Callable[[str], None] = print) -> None:
    """The end of each failed phase's log, and of what its first failed tests left."""
    for result in results:
        log = logs / f"{result.phase.replace(' ', '-')}.log"
        if not result.problem or result.skipped or not log.exists():
            continue
        say(f"\n--- {result.phase}: {result.problem}; the last of {log}")
        say(tail(log))
        left = sorted((log.with_suffix("") / "exported").glob("*/proxy.log"))
        for proxy in left[:SHOWN_TESTS]:
            say(f"\n--- {proxy}")
            say(tail(proxy))


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
    began = time.monotonic()
    signal.signal(signal.SIGTERM, interrupted)
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="farmctl-ci-") as folder:
        # A state folder of this run's own: a farm that somebody has up here is neither used nor taken down.
        env = {"FARMCTL_STATE": str(Path(folder, "state"))}
        run = Run()
        try:
            check_all(run, env)
        except (KeyboardInterrupt, SystemExit):
            run.fail("run", "interrupted")
        finally:
            clean(run, env)
    failed = [result for result in run.results if result.problem and not result.skipped]
    explain(run.results, LOGS)
    print(summarise(run.results, retried(LOGS), time.monotonic() - began), flush=True)
    if failed:
        print(f"FAILED: {', '.join(result.phase for result in failed)}; logs: {LOGS}", flush=True)
        return 1
    # Only of a run that passed: what a failed one leaves is there to be looked at.
    subprocess.run(["make", "-s", "clean"], cwd=ROOT, check=False)
    return 0


def interrupted(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(130)


if __name__ == "__main__":
    sys.exit(main())
