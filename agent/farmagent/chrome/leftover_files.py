"""Removes what a Chrome's uid left outside its own directories: a caller may name any folder for downloads.

The rule: only files of that uid go, and only while no Chrome runs under it. They are looked for wherever any uid of
the machine may write; the folders are found once, at start.
"""

import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
# File systems of the kernel's own: nothing can be left there.
_PSEUDO = (
    "autofs binder binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts efivarfs fusectl nsfs proc pstore "
    "rpc_pipefs securityfs selinuxfs sysfs tracefs"
)
PSEUDO = frozenset(_PSEUDO.split())
# A container's whole root has fewer folders; on a machine the deep ones are left out, nearest first.
FOLDERS_LIMIT = 4000


@dataclass(frozen=True, slots=True)
class Places:
    """``cut``: there were more folders than are looked at."""

    folders: tuple[Path, ...]
    cut: bool = False


def writable(mounts: Path = MOUNTS, *, limit: int = FOLDERS_LIMIT) -> Places:
    """The folders in which any uid may make files, on every mount that can be written to. Blocks."""
    roots = [root for root in _mount_points(mounts) if _can_be_reached(root)]
    seen: set[tuple[int, int]] = set()
    found: list[Path] = []
    todo = deque((root, -1) for root in roots)
    while todo and len(seen) < limit:
        folder, device = todo.popleft()
        with suppress(OSError):
            status = folder.lstat()
            # another mount below has its own place among the roots, or is none that can be written to
            if device not in (-1, status.st_dev) or (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            if not stat.S_ISDIR(status.st_mode) or not status.st_mode & stat.S_IXOTH:
                continue
            if status.st_mode & stat.S_IWOTH:
                found.append(folder)
            below = (entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
            todo.extend((Path(path), status.st_dev) for path in below)
    return Places(tuple(found), cut=bool(todo))


def owners(folders: Iterable[Path], uids: Collection[int]) -> set[int]:
    """Which of these uids left something in the folders. Blocks."""
    return {status.st_uid for _, status in _entries(folders) if status.st_uid in uids}


def remove(folders: Iterable[Path], uid: int, *, spared: Collection[Path] = ()) -> list[Path]:
    """Remove everything of that uid in the folders, and in those below them that any uid may write to, but for the
    ``spared`` paths and what leads to them. Returns what could not be removed. Blocks: call it in a thread.
    """
    kept = []
    for path, status in _entries(folders, spared):
        if status.st_uid != uid:
            continue
        with suppress(OSError):
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(path)
            else:
                path.unlink()
        if os.path.lexists(path):
            kept.append(path)
    return kept


def _entries(folders: Iterable[Path], spared: Collection[Path] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    todo = list(folders)
    while todo:
        try:
            entries = list(os.scandir(todo.pop()))
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if path in spared:
                    continue
                if any(one.is_relative_to(path) for one in spared):
                    todo.append(path)
                    continue
                yield path, status
                if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH:
                    todo.append(path)  # one that was removed meanwhile has no entries


def _mount_points(mounts: Path) -> list[Path]:
    points = []
    for line in mounts.read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        point, own = fields.split(" ")[4:6]
        if kind not in PSEUDO and {"rw"} <= set(own.split(",")) & set(options.split(",")):
            points.append(Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)))
    return points


def _can_be_reached(path: Path) -> bool:
    """Whether any uid may pass through all folders above."""
    with suppress(OSError):
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    return False
