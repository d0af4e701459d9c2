"""Where the time of a proxy goes when a target is missed: Python by cProfile, the whole process by perf.

cProfile slows Python several times and nothing else, so its shares are of Python's own time; perf (where it
is installed) says how much of the process is Python, its libraries and the kernel.
"""

import pstats
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from farmctl.bench.callers import Plan
from farmctl.bench.contenders import FARM, Contender, farm_proxy
from farmctl.bench.processes import FakeFarm, begin_call, call, finish_call
from farmctl.bench.results import Profile
from farmctl.bench.stage import Stage

LINES = 25


def of_farm(stage: Stage, plan: Plan, *, pods: int) -> list[Profile]:
    """Profile the farm's proxy under this plan (its door is filled in)."""
    stage.say("a target was missed: profiling the proxy")
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="farmctl-profile-") as folder,
        FakeFarm(stage.cores, pods=pods) as farm,
    ):
        written = Path(folder, "proxy.prof")
        with farm_proxy(farm, stage.cores, profile=written) as contender:
            call(replace(plan, door=contender.door, seconds=stage.step_s), stage.cores)
        if written.exists():
            found.append(by_function(written))
        with farm_proxy(farm, stage.cores) as contender:
            whole = by_library(
                contender, stage, replace(plan, door=contender.door), Path(folder, "perf.data")
            )
            found.extend([whole] if whole else [])
    return found


def by_function(path: Path) -> Profile:
    """Read a cProfile file; the loop's waiting is no work and is left out."""
    stats = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    own: Counter[str] = Counter()
    for (file, _line, name), (_cc, _calls, own_s, _sum_s, _callers) in stats.items():
        if "run_until_complete" not in name and "epoll_wait" not in name:
            own[f"{_short(file)}{name}"] += own_s
    whole = sum(own.values()) or 1.0
    return Profile(FARM, "cProfile, own time", [(n, s / whole) for n, s in own.most_common(LINES)])


def _short(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    for package in ("farmproxy", "site-packages"):
        if package in parts:
            return ".".join(parts[parts.index(package) + (package != "farmproxy") :]) + ": "
    return "" if file == "~" else f"{parts[-1]}: "


def by_library(contender: Contender, stage: Stage, plan: Plan, data: Path) -> Profile | None:
    """Sample the process under the plan with perf; None where perf is missing or not permitted."""
    perf = shutil.which("perf")
    if perf is None:
        return None
    callers = begin_call(replace(plan, seconds=stage.step_s), stage.cores)
    record = [perf, "record", "-q", "-e", "cpu-clock", "-F", "999", "-p", str(contender.process.pid)]
    subprocess.run(
        [*record, "-o", str(data), "--", "sleep", str(stage.step_s)], capture_output=True, check=False
    )
    finish_call(callers, plan)
    report = subprocess.run(
        [perf, "report", "-i", str(data), "--stdio", "-q", "--sort", "dso"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split() for line in report.stdout.splitlines() if "%" in line]
    if not lines:
        return None
    return Profile(
        contender.name,
        "perf, by library",
        [(words[-1], float(words[0].rstrip("%")) / 100) for words in lines[:8]],
    )
