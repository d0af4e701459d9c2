"""What has to hold before a cluster is created: every lack at once, each with its remedy, before anything is made.

Readings come first and the judgement is pure, so that each rule is tested without a machine that lacks something.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from farmctl import machine
from farmctl.errors import StageError
from farmctl.images.engines import Engine
from farmctl.testbeds.kind.cluster.cluster_spec import Shape

GIB = 1 << 30
# Measured (docs/kind.md): inotify instances that a node of a running cluster holds (31 and 12), and
# a reserve.
# Without them pods fail with "too many open files" although descriptors are left.
INSTANCES_CONTROL_PLANE, INSTANCES_WORKER = 40, 20
WATCHES_LEAST = (
    8192  # kubelets and containerds watch some hundred paths each; 8192 is the kernel's old default
)
# Measured: node volumes and the loaded images take 3 GiB a node; a build from source takes Go's caches as well.
DISK_A_NODE_GIB = 3
DISK_BUILD_GIB = 22
DESCRIPTORS_LEAST = 4096


@dataclass(frozen=True, slots=True)
class Readings:
    """``*_free`` counts what is left for this user; None where this system does not say."""

    engine: str
    unified: bool
    runc: bool
    instances_free: int | None
    instances_limit: int
    watches_limit: int | None
    disk_free_gib: float
    modules: bool
    descriptors: int
    taken_ports: tuple[int, ...] = ()


def check(engine: Engine, shape: Shape, *, building: bool) -> None:
    """Raises StageError naming each lack and its remedy; nothing is made or changed."""
    found = list(lacks(read(engine, shape), shape, building=building))
    if found:
        lines = [f"{what}\n    mend: {mend}" for what, mend in found]
        raise StageError("no cluster can be made here:\n  " + "\n  ".join(lines), hint="farmctl doctor")


def lacks(seen: Readings, shape: Shape, *, building: bool) -> Iterator[tuple[str, str]]:
    """What is missing and the command that mends it."""
    nodes = shape.workers + 1
    if seen.engine == "podman" and not seen.unified and not seen.runc:
        yield "podman on cgroup v1 needs runc, crun refuses it", "apt-get install -y runc"
    wanted = INSTANCES_CONTROL_PLANE + INSTANCES_WORKER * shape.workers
    if seen.instances_free is not None and seen.instances_free < wanted:
        yield (
            f"inotify instances: {seen.instances_free} of {seen.instances_limit} are free, {nodes} nodes need {wanted}",
            "sysctl -w fs.inotify.max_user_instances=512",
        )
    if seen.watches_limit is not None and seen.watches_limit < WATCHES_LEAST * nodes:
        yield (
            f"inotify watches: at most {seen.watches_limit}, {nodes} nodes need {WATCHES_LEAST * nodes}",
            "sysctl -w fs.inotify.max_user_watches=524288",
        )
    need = DISK_A_NODE_GIB * nodes + (DISK_BUILD_GIB if building else 0)
    if seen.disk_free_gib < need:
        yield (
            f"disk: {seen.disk_free_gib:.1f} GiB free, {need} GiB needed",
            "farmctl images prune, or free space",
        )
    if not seen.modules:
        yield "/lib/modules does not exist, and every node mounts it", "mkdir -p /lib/modules (empty serves)"
    if seen.descriptors < DESCRIPTORS_LEAST:
        yield f"open files: at most {seen.descriptors}, {DESCRIPTORS_LEAST} needed", "ulimit -n 65536"
    for port in seen.taken_ports:
        yield (
            f"port {port} is taken",
            f"farmctl up --door {shape.door_host}:9322, or see who has it: ss -ltnp sport = :{port}",
        )


def read(engine: Engine, shape: Shape) -> Readings:
    import resource

    # Nodes in a virtual machine have its kernel; of this machine they take the door's ports.
    limit = None if engine.elsewhere else _sysctl("fs/inotify/max_user_instances")
    return Readings(
        engine=engine.name,
        unified=engine.unified,
        runc=engine.elsewhere or shutil.which("runc") is not None,
        instances_free=None if limit is None else limit - inotify_instances(),
        instances_limit=limit or 0,
        watches_limit=None if engine.elsewhere else _sysctl("fs/inotify/max_user_watches"),
        disk_free_gib=shutil.disk_usage(_graph_root(engine)).free / GIB,
        modules=engine.elsewhere or machine.modules().verdict == "ok",
        descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        taken_ports=tuple(
            port
            for port, what in ((shape.door_port, "door"), (shape.admin_port, "admin"))
            if machine.port(port, what, host=shape.door_host).verdict != "ok"
        ),
    )


def inotify_instances() -> int:
    """Instances held on this machine by processes that we may look at (the limit counts them by user)."""
    held = 0
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            held += sum(str(fd.readlink()) == "anon_inode:inotify" for fd in folder.iterdir())
        except OSError:
            continue
    return held


def _sysctl(path: str) -> int | None:
    try:
        return int(Path("/proc/sys", path).read_text())
    except (OSError, ValueError):
        return None


def _graph_root(engine: Engine) -> Path:
    """Where the engine keeps its images, when that is on this machine."""
    words = ("info", "--format", "{{.Store.GraphRoot}}" if engine.name == "podman" else "{{.DockerRootDir}}")
    root = Path(engine.run(*words, check=False).stdout.strip() or "/")
    return root if root.is_dir() else Path.home()
