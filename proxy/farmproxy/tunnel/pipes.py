"""Pipes for splice(2): while bulk flows, its bytes go from socket to socket without being copied through Python.

A pipe costs two descriptors, so there are few, only while bulk flows, and none where the process runs short.
"""

import contextlib
import fcntl
import os

PIPE_BYTES = 1024 * 1024  # what an unprivileged process may ask for (fs.pipe-max-size)
SPLICE_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
_LIMIT = 64  # pipes at once; fs.pipe-user-pages-soft lets a user have 64 MiB of them
_KEPT = 4  # idle pipes kept for the next bulk


class Pipe:
    """``held`` is the number of bytes in it."""

    __slots__ = ("held", "read_fd", "write_fd")

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.held = 0


class Pipes:
    """Lends pipes; None when there is none to lend, and the bytes are copied as before."""

    __slots__ = ("_idle", "lent", "open")

    def __init__(self) -> None:
        self._idle: list[Pipe] = []
        self.lent = 0
        self.open = 0  # descriptors that pipes hold now

    def lend(self) -> Pipe | None:
        if self.lent >= _LIMIT:
            return None
        pipe = self._idle.pop() if self._idle else _new()
        if pipe is not None:
            self.lent += 1
            self.open = 2 * (self.lent + len(self._idle))
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        self.lent -= 1
        if pipe.held == 0 and len(self._idle) < _KEPT:
            self._idle.append(pipe)
        else:
            _close(pipe)
        self.open = 2 * (self.lent + len(self._idle))

    def close(self) -> None:
        while self._idle:
            _close(self._idle.pop())


def _new() -> Pipe | None:
    try:
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):  # the default size works as well, only slower
        fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return Pipe(read_fd, write_fd)


def _close(pipe: Pipe) -> None:
    os.close(pipe.read_fd)
    os.close(pipe.write_fd)
