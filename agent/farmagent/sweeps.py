"""Removes what a Chrome's user left outside its own directories: a caller may name any folder for downloads.

The rule: only files of Chrome's own uid go, only in the folders that the settings name (this pod's alone), and
only those that were there when its process had ended, so that nothing is taken from the next Chrome.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

# Chrome makes a file in /dev/shm, opens it a second time by its name and unlinks it. What a Chrome that starts
# meanwhile is about to open is gone of itself after this long; what was left on purpose is not.
SETTLE_S = 1.0

Left = tuple[Path, int]  # with its inode number


def find(folders: Iterable[Path], uid: int, *, spared: Path) -> list[Left]:
    """Everything of that user below the folders, trees by their top. Blocks: call it in a thread."""
    return [left for folder in folders for left in _of_user(folder, uid, spared)]


def remove(found: Iterable[Left], uid: int) -> list[Path]:
    """Remove what is still the same file; returns what could not be removed. Blocks."""
    kept = []
    for path, inode in found:
        if not _is_still(path, inode, uid):
            continue
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if _is_still(path, inode, uid):
            kept.append(path)
    return kept


def _of_user(folder: Path, uid: int, spared: Path) -> Iterator[Left]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        with suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if path == spared:
                continue
            if status.st_uid == uid:
                yield path, status.st_ino
            elif entry.is_dir(follow_symlinks=False):
                yield from _of_user(path, uid, spared)


def _is_still(path: Path, inode: int, uid: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return (status.st_ino, status.st_uid) == (inode, uid)
