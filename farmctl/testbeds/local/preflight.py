"""What has to hold before a farm is started here; each lack is a StageError with its cause and its remedy.

Nothing is made and nothing is changed, so a failed preflight leaves nothing half-made.
"""

import errno
import os
import platform
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from farmctl.errors import StageError
from farmctl.testbeds.local.settings import NETWORK_VARIABLE, LocalSettings

DISK_LEAST_BYTES = 256 * 1024 * 1024  # four Chromes' fresh profiles, logs, downloads of a job


def check(settings: LocalSettings) -> None:
    """Raises StageError at the first lack."""
    check_system()
    check_disk(str(settings.work.parent))
    check_reach(settings.work.parent)
    for what, address, remedy in _addresses(settings):
        check_port(what, address, remedy)


def check_system() -> None:
    if platform.system() != "Linux":
        raise StageError(
            f"the local testbed runs on Linux only, this is {platform.system()}",
            hint="farmctl up --testbed kind",
        )


def check_disk(folder: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < DISK_LEAST_BYTES:
        raise StageError(
            f"the disk at {folder} is full: {free >> 20} MiB free, {DISK_LEAST_BYTES >> 20} MiB needed",
            hint=f"free space there, or set TMPDIR to another disk (now {tempfile.gettempdir()})",
        )


def check_reach(folder: Path) -> None:
    """Root gives Chrome a uid of its own, which has to get to its profile."""
    if os.geteuid() != 0:
        return
    for part in (folder, *folder.parents):
        if not part.stat().st_mode & stat.S_IXOTH:
            raise StageError(
                f"Chrome, which runs under a uid of its own, cannot reach {folder}: {part} is closed to others",
                hint="TMPDIR=/tmp farmctl up",
            )


def check_port(what: str, address: str, remedy: str) -> None:
    host, _, port = address.rpartition(":")
    if port == "0":
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
            probe.listen(1)
        except OSError as error:
            raise StageError(f"{what} {address}: {_cause(error)}", hint=remedy) from error


def _cause(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is taken by another program"
    return error.strerror or str(error)


def _addresses(settings: LocalSettings) -> Iterator[tuple[str, str, str]]:
    see = "see who has it: ss -ltnp"
    yield "the door", settings.door, f"farmctl up --door 127.0.0.1:9322, or {see}"
    yield "the admin port", settings.admin, f"farmctl up --door 127.0.0.1:9322, or {see}"
    for number in range(1, settings.setup.pods + 1):
        address = f"{settings.network}.{number}:{settings.agent_port}"
        yield f"pod {number}", address, f"set {NETWORK_VARIABLE}=127.0.2, or {see}"
