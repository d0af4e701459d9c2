"""Examines the machine: one function a check, each returns what was found and how to mend it. Nothing is changed."""

import os
import platform
import resource
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from farmctl import chromium

if TYPE_CHECKING:
    from farmctl.images.engines import Engine

Verdict = Literal["ok", "warn", "missing"]
BOTH, LOCAL, KIND = ("local", "kind"), ("local",), ("kind",)
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. ``needed_by`` names the testbeds that want it; ``mend`` is a command, or "" when none is due."""

    name: str
    verdict: Verdict
    found: str
    needed_by: tuple[str, ...]
    mend: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(*, registry: str = "") -> list[Finding]:
    """Run every check; ``registry`` is host[:port], or "" to leave the network alone."""
    checks: list[Callable[[], Finding]] = [
        system,
        browser,
        modules,
        descriptors,
        inotify_instances,
        inotify_watches,
        connections,
        memory,
        disk,
        lambda: port(9222, "door"),
        lambda: port(9223, "admin"),
        lambda: reach(registry),
    ]
    return [*engine(), *(check() for check in checks)]


def system() -> Finding:
    found = f"{platform.system()} {platform.release()}"
    if platform.system() == "Linux":
        return Finding("system", "ok", found, BOTH)
    return Finding("system", "missing", found, LOCAL, "farmctl up --testbed kind")


def browser() -> Finding:
    try:
        return Finding("chromium", "ok", str(chromium.find()), LOCAL)
    except chromium.NoChromium as error:
        return Finding("chromium", "missing", str(error), LOCAL, error.hint)


def engine() -> list[Finding]:
    """The container engine, and what it says of the machine that containers run on: that may be another than this one."""
    from farmctl.errors import StageError
    from farmctl.images import engines

    try:
        found = engines.find()
    except StageError as error:
        return [Finding("engine", "missing", str(error), KIND, error.hint)]
    where = ", rootless" * found.rootless + ", in a virtual machine" * found.elsewhere
    return [Finding("engine", "ok", f"{found.name} {found.version}{where}", KIND), cgroups(found)]


def cgroups(found: "Engine") -> Finding:
    if found.unified:
        return Finding("cgroups", "ok", "v2", KIND)
    if found.name != "podman" or found.elsewhere:
        return Finding("cgroups", "ok", "v1 or hybrid", KIND)
    if shutil.which("runc"):
        return Finding("cgroups", "ok", "v1 or hybrid, and runc is there for podman", KIND)
    return Finding(
        "cgroups", "missing", "v1 or hybrid", KIND, "apt-get install -y runc (podman needs it here)"
    )


def modules() -> Finding:
    # Where the engine is a virtual machine's (not Linux), the modules are too.
    if platform.system() != "Linux" or Path("/lib/modules").is_dir():
        return Finding("/lib/modules", "ok", "there", KIND)
    return Finding(
        "/lib/modules", "missing", "every node mounts it", KIND, "mkdir -p /lib/modules (empty serves)"
    )


def descriptors() -> Finding:
    # A pod's Chrome holds some 300 descriptors, the proxy two a session.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    good = hard >= 4096
    return Finding(
        "open files",
        "ok" if good else "warn",
        f"{soft} (hard {hard})",
        BOTH,
        "" if good else "ulimit -n 65536",
    )


def inotify_instances() -> Finding:
    return _sysctl("fs/inotify/max_user_instances", 512)


def inotify_watches() -> Finding:
    return _sysctl("fs/inotify/max_user_watches", 524_288)


def _sysctl(path: str, least: int) -> Finding:
    # kind's own known-issues page asks for these two; below them kube-proxy or pods fail with
    # "too many open files" on several nodes.
    name = path.replace("/", ".")
    try:
        value = int(Path("/proc/sys", path).read_text())
    except OSError as error:
        return Finding(name, "warn", str(error), KIND)
    if value >= least:
        return Finding(name, "ok", str(value), KIND)
    return Finding(name, "warn", f"{value}, wanted {least}", KIND, f"sysctl -w {name}={least}")


def connections(tracking: Path = Path("/proc/sys/net/netfilter")) -> Finding:
    """How full the packet filter's table is: beyond it packets are dropped, and everything connects seconds late."""
    try:
        count, limit = (int((tracking / f"nf_conntrack_{word}").read_text()) for word in ("count", "max"))
    except OSError:
        return Finding("tracked connections", "ok", "none: no packet filter follows them", BOTH)
    found = f"{count} of {limit}"
    if count <= 0.8 * limit:
        return Finding("tracked connections", "ok", found, BOTH)
    return Finding(
        "tracked connections", "warn", found, BOTH, f"sysctl -w net.netfilter.nf_conntrack_max={2 * limit}"
    )


def memory() -> Finding:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    good = gib >= 3.5  # four pods at about 0.35 GiB each (0.45 with a spare), callers and the rest
    return Finding(
        "memory", "ok" if good else "warn", f"{gib:.1f} GiB", BOTH, "" if good else "farmctl up --pods 2"
    )


def disk() -> Finding:
    free = shutil.disk_usage(Path.home()).free / GIB
    good = free >= 20  # a source-built kind cluster takes that; the local testbed takes below one
    verdict: Verdict = "ok" if good else "warn" if free >= 1 else "missing"
    return Finding(
        "disk",
        verdict,
        f"{free:.1f} GiB free",
        BOTH if free < 1 else KIND,
        "" if good else "farmctl down, then free space",
    )


def port(number: int, what: str, host: str = "127.0.0.1") -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as error:
            mend = f"farmctl status, or `ss -ltnp sport = :{number}` to see who has it"
            return Finding(f"port {number}", "warn", f"{what}: {error.strerror}", BOTH, mend)
    return Finding(f"port {number}", "ok", f"{what}: free", BOTH)


def reach(registry: str) -> Finding:
    if not registry:
        return Finding(
            "registry",
            "warn",
            "not asked",
            KIND,
            "farmctl doctor --registry HOST; without one, images are built from source",
        )
    host, _, number = registry.partition(":")
    try:
        with socket.create_connection((host, int(number or 443)), timeout=5):
            return Finding("registry", "ok", registry, KIND)
    except (OSError, ValueError) as error:
        return Finding(
            "registry", "warn", f"{registry}: {error}", KIND, "none needed: images are built from source"
        )
