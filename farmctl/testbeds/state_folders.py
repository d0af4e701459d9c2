"""Where a testbed keeps what its next command needs, and what the operating system says against it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from farmctl.errors import StageError

STATE_VARIABLE = "FARMCTL_STATE"


def default_path() -> Path:
    if named := os.environ.get(STATE_VARIABLE):
        return Path(named).absolute()
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "farmctl"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into a cause and a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StageError(
                f"the disk is full at {path}", hint=f"free space: df -h {path.parent}"
            ) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}:
            raise StageError(
                f"cannot write {path}: {error.strerror}",
                hint=f"set {STATE_VARIABLE} to a folder that you may write",
            ) from error
        raise
