"""Where the time of a proxy goes when a target is missed: Python by cProfile, the whole process by perf.

cProfile slows Python several times and nothing else, so its shares are of Python's own time; perf (where it
is installed) says how much of the process is Python, its libraries and the kernel.
"""

import pstats
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from farmctl.bench.load.plans import Plan
from farmctl.bench.load.processes import FakeFarm, begin_call, call, finish_call
from farmctl.bench.load.proxies_under_test import FARM, Contender, farm_proxy
from farmctl.bench.results import Profile
from farmctl.bench.stage import Stage

LINES = 25
SYSTEM = "system calls (sockets, epoll, pipes)"
SYSTEM_CALLS = re.compile(r"_socket|epoll|posix|socket\.close|FileIO")
NO_WORK = re.compile(r"runners.*run")
Function = tuple[str, int, str]  # file ("~" for C), line, name
Stats = dict[Function, tuple[int, int, float, float, dict[Function, tuple[int, int, float, float]]]]
Spent = tuple[Function, Function]  # what spent it, called by whom (itself, if it is Python)
PARTS = {  # rooms and modules of farmproxy; the innermost that is named here counts
    "core": "core: who gets which pod",
    "door": "door: accept, head, routes, the caller's state",
    "driver": "driver and lease book",
    "registry": "driver and lease book",
    "proxy": "driver and lease book",
    "upstream": "dial and handshake",
    "agent_client": "the agent's word after the lease",
    "readiness_polls": "the agent's word after the lease",
    "chrome_versions": "the agent's word after the lease",
    "tunnel": "relay",
    "net": "readiness and timers",
    "sockets": "socket options",
    "observe": "metrics and log",
    "kube": "watch of the slices",
}
LIBRARIES = {
    "prometheus_client": "metrics and log",
    "structlog": "metrics and log",
    "aiohttp": "watch of the slices",
}


def of_farm(stage: Stage, plan: Plan, *, pods: int, functions: bool = True) -> list[Profile]:
    """Profile the farm's proxy under this plan (its door is filled in); ``functions`` adds the longest table."""
    stage.say("profiling the proxy")
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="farmctl-profile-") as folder,
        FakeFarm(stage.cores, pods=pods) as farm,
    ):
        idle, busy = Path(folder, "idle.prof"), Path(folder, "busy.prof")
        with farm_proxy(farm, stage.cores, profile=idle):
            pass  # what its start and end cost is no lease's
        with farm_proxy(farm, stage.cores, profile=busy) as contender:
            call(replace(plan, door=contender.door, seconds=stage.step_s), stage.cores)
        if idle.exists() and busy.exists():
            spent = difference(_stats(busy), _stats(idle))
            found.append(by_part(spent))
            found.extend([by_function(spent)] if functions else [])
        with farm_proxy(farm, stage.cores) as contender:
            whole = by_library(
                contender, stage, replace(plan, door=contender.door), Path(folder, "perf.data")
            )
            found.extend([whole] if whole else [])
    return found


def _stats(path: Path) -> Stats:
    stats: Stats = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    return stats


def difference(busy: Stats, idle: Stats) -> dict[Spent, float]:
    """Own seconds of each function and, for C functions, of each of their callers, less those of an idle run."""
    spent: dict[Spent, float] = {}
    for function, (_cc, _calls, own_s, _sum_s, callers) in busy.items():
        _, _, idle_s, _, idle_callers = idle.get(function, (0, 0, 0.0, 0.0, {}))
        if function[0] != "~":
            spent[function, function] = max(0.0, own_s - idle_s)
            continue
        for caller, (_c, _n, by_s, _s) in callers.items():
            before_s = idle_callers[caller][2] if caller in idle_callers else 0.0
            spent[function, caller] = max(0.0, by_s - before_s)
    return spent


def by_part(spent: dict[Spent, float]) -> Profile:
    """Sum up by what the proxy's modules are for; system calls stand apart, and what is no work for callers (the
    loop's waiting) is left out.
    """
    own: defaultdict[str, float] = defaultdict(float)
    for (function, caller), seconds in spent.items():
        part = _part(caller[0])
        own[SYSTEM if part and function[0] == "~" and SYSTEM_CALLS.search(function[2]) else part] += seconds
    own.pop("", None)
    return _shares("cProfile, by part", own, len(own))


def by_function(spent: dict[Spent, float]) -> Profile:
    """Sum up by function; the loop's waiting is no work and is left out."""
    own: defaultdict[str, float] = defaultdict(float)
    for ((file, _line, name), _caller), seconds in spent.items():
        if not NO_WORK.search(f"{file}{name}"):
            own[f"{_short(file)}{name}"] += seconds
    return _shares("cProfile, own time", own, LINES)


def _shares(how: str, own: Mapping[str, float], lines: int) -> Profile:
    whole = sum(own.values()) or 1.0
    most = sorted(own, key=lambda what: -own[what])[:lines]
    return Profile(FARM, how, [(what, own[what] / whole) for what in most])


def _part(file: str) -> str:
    """Name the part that a file belongs to, empty for none of the proxy's."""
    path = Path(file)
    for package, part in LIBRARIES.items():
        if package in path.parts:
            return part
    if "farmproxy" not in path.parts:
        return ""
    inside = path.with_suffix("").parts[path.parts.index("farmproxy") + 1 :]
    return next((PARTS[name] for name in reversed(inside) if name in PARTS), "")


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
        [(words[-1].strip("[]"), float(words[0].rstrip("%")) / 100) for words in lines[:8]],
    )
