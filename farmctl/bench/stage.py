"""What every benchmark is given: cores, rounds, how long a step lasts, and where it says what it does."""

import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from farmctl.bench.load.processes import Cores
from farmctl.bench.load.proxies_under_test import interpreter

PACKAGES = ("farmctl", "farm-proxy", "farm-agent", "uvloop", "h11", "msgspec", "aiohttp", "playwright")


@dataclass(frozen=True, slots=True)
class Stage:
    """``step_s`` is the length of one measured step; ``quick`` is for a smoke run, its figures are no claim."""

    rounds: int
    quick: bool
    say: Callable[[str], None]
    cores: Cores = field(default_factory=Cores.split)

    @property
    def step_s(self) -> float:
        return 1.5 if self.quick else 6.0


def raise_descriptors() -> int:
    """Let this process and all it starts open as many files as the machine permits; return how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def about(doc: str | None) -> str:
    """Return the second paragraph of a benchmark's docstring: how it measures, for the page."""
    return " ".join((doc or "").partition("\n\n")[2].split())


def machine() -> dict[str, Any]:
    """Describe this machine as far as the figures depend on it."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or "unknown",
    )
    memory_kib = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "cores_of_the_proxy": len(Cores.split().proxy),
        "cores_of_its_load": len(Cores.split().generators),
        "load_before": round(os.getloadavg()[0], 2),
        # `chrt --rr 1 farmctl bench` keeps other programs of a busy machine out of the figures
        "real_time": os.sched_getscheduler(0) in {os.SCHED_FIFO, os.SCHED_RR},
    }


def versions() -> dict[str, str]:
    """Return the versions of everything measured."""
    found = {"python": platform.python_version(), "python of the proxy": _python()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    binary = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/sbin")
    if binary:
        first = subprocess.run([binary, "-v"], capture_output=True, text=True, check=False).stdout
        found["haproxy"] = first.split()[2] if len(first.split()) > 2 else "unknown"
    return found


def _python() -> str:
    """The proxy's interpreter: builds of one version differ in speed."""
    binary = interpreter()[0]
    code = "import platform; print(platform.python_version(), 'built', platform.python_build()[1])"
    said = subprocess.run([binary, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    return f"{said} ({os.path.realpath(binary)})"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
