"""Times `farmctl up` itself, from a copy of our packages: what is installed is never touched, and the farm is put back."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from farmctl.bench.kind import farms
from farmctl.errors import StageError
from farmctl.images import engines, farm, loading
from farmctl.testbeds.kind.cluster import nodes
from farmctl.testbeds.kind.cluster.state import KindFolder

# What `up` reads: its own code, recipes and manifests in it, and the code that goes into images.
PARTS = ("farmctl", "farmagent", "farmproxy", "farmwire")
CHANGED = Path("farmagent/__init__.py")
UP_S = 600.0
STEP = re.compile(r"^\s*(\d+\.\d) s  (.*)$")


@dataclass(frozen=True, slots=True)
class Up:
    """One `up`; ``steps`` are its own progress lines: seconds and what was done."""

    seconds: float
    steps: tuple[tuple[float, str], ...]

    def spent_s(self, verb: str) -> float:
        return sum(seconds for seconds, what in self.steps if what.startswith(f"{verb} "))


@dataclass(frozen=True, slots=True)
class Changed:
    """An `up` after a change of the agent's code, until every new pod is free."""

    seconds: float
    built_s: float
    loaded_s: float

    @property
    def rolled_s(self) -> float:
        return self.seconds - self.built_s - self.loaded_s


class Copy:
    """A copy in a folder of its own. ``put_back`` brings the farm back to the images of what is installed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="farmctl-copy-")
        self.path = Path(self._folder.name)
        self._changes = 0
        self._made: set[str] = set()

    def __enter__(self) -> Self:
        for part in PARTS:
            shutil.copytree(
                farm.installed(part), self.path / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def change(self) -> None:
        """Add a comment to the agent's code that no copy had before: a new image."""
        self._changes += 1
        with (self.path / CHANGED).open("a") as out:
            out.write(f"\n# benchmark {time.time_ns()}, change {self._changes}\n")

    def up(self) -> Up:
        """Raises StageError with what it said when it fails."""
        done = run_up(self.path)
        self._made.add(browser_image())
        return done

    def put_back(self) -> None:
        """`up` with what is installed, then without a trace of the copies' images."""
        run_up()
        forget(self._made - {browser_image()})


def run_up(copy: Path | None = None) -> Up:
    """`farmctl up` of the farm that is there, with the code in ``copy``."""
    code = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"} if copy else {}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "farmctl", "up", "--testbed", "kind"],
            cwd=copy,
            env={**os.environ, **code},
            capture_output=True,
            text=True,
            timeout=UP_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StageError(f"farmctl up did not end within {UP_S:.0f} s", hint="farmctl status") from error
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise StageError(f"farmctl up failed: {done.stderr.strip()[-600:]}", hint="farmctl up")
    return Up(seconds, tuple(steps(done.stderr.splitlines())))


def steps(lines: Iterable[str]) -> list[tuple[float, str]]:
    """The progress lines of an `up`, in order."""
    return [(float(found[1]), found[2]) for line in lines if (found := STEP.match(line))]


async def changed(copy: Copy, admin: str, pods: int) -> Changed:
    copy.change()
    before = browser_image()
    began = time.monotonic()
    done = await asyncio.to_thread(copy.up)
    if browser_image() == before:
        raise StageError("the changed agent's code gave no new image", hint="was the code copied whole?")
    await farms.until_idle(admin, pods)
    return Changed(time.monotonic() - began, done.spent_s("building"), done.spent_s("loading"))


def browser_image() -> str:
    """What the farm's record says its pods run."""
    there = KindFolder().read()
    return "" if there is None else there.images.get("browser", "")


def forget(tags: Iterable[str]) -> None:
    """Remove images from the engine and from the nodes. One that a pod still ends on stays until the next prune."""
    engine, there = engines.find(KindFolder().engine()), KindFolder().read()
    found = nodes.listed(engine, there.shape.name) if there is not None and there.shape is not None else []
    for tag in tags:
        engine.run("rmi", tag, check=False)
        for node in found:
            loading.drop(engine, node.name, tag)
