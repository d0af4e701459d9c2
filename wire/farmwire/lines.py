"""Log lines to a stream whose reader may be slow, stopped or gone: who writes never waits.

The rule: a line is written whole or not at all. What the reader has no room for is kept up to a bound; beyond it lines are
dropped and counted, and the reader is told of them once it reads again.
"""

import errno
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import IO, Any

KEPT_LIMIT = 1024 * 1024  # bytes kept for a reader that is behind
_DROPPED = b'{"event":"log-lines-dropped","level":"warning","lines":%d}\n'


class LineWriter:
    """``dropped``: lines lost so far, to a reader that is behind or gone."""

    def __init__(self, stream: IO[Any]) -> None:
        """``stream``: standard output, or whatever stands for it (no descriptor: it is written to as it is)."""
        self.dropped = 0
        self._told = 0
        self._kept = bytearray()
        self._stream = stream
        self._write: Callable[[bytes], int] = self._to_stream
        self.close: Callable[[], None] = stream.flush
        with suppress(
            OSError, ValueError
        ):  # ValueError: closed, or no descriptor at all (io.UnsupportedOperation)
            self._write, self.close = _writer_to(stream.fileno())

    def write(self, line: bytes) -> None:
        """``line`` without its end."""
        if self._kept:
            self.flush()
            if self._kept:
                self._keep(line + b"\n")
                return
        self._send(line + b"\n")

    def flush(self) -> None:
        """Write what was kept, as far as there is room; nobody has to call it but for the last lines."""
        while self._kept:
            kept = bytes(self._kept[:65536])
            sent = self._try(kept)
            if sent is None:
                # Nobody reads: a torn line stays torn, the rest is lost.
                self.dropped += self._kept.count(b"\n")
                self._kept.clear()
                return
            del self._kept[:sent]
            if sent < len(kept):
                return
        if self._told < self.dropped:
            told, self._told = self.dropped - self._told, self.dropped
            self._send(_DROPPED % told)

    def _send(self, line: bytes) -> None:
        sent = self._try(line)
        if sent is None:
            self.dropped += 1
            self._told = self.dropped  # there is nobody to tell
        elif sent < len(line):
            self._kept += line[sent:]

    def _keep(self, line: bytes) -> None:
        if len(self._kept) + len(line) <= KEPT_LIMIT:
            self._kept += line
        else:
            self.dropped += 1

    def _try(self, data: bytes) -> int | None:
        """Bytes written; None when nobody will ever read them."""
        try:
            return self._write(data)
        except BlockingIOError:
            return 0
        except (OSError, ValueError) as error:
            return 0 if isinstance(error, OSError) and error.errno == errno.EINTR else None

    def _to_stream(self, data: bytes) -> int:
        try:
            self._stream.write(data)
        except TypeError:  # a text stream, as a test's
            self._stream.write(data.decode())
        self._stream.flush()
        return len(data)


def _writer_to(fd: int) -> tuple[Callable[[bytes], int], Callable[[], None]]:
    """What writes to the descriptor without waiting, and what closes it again. Its file description may be shared with other programs, which expect it
    to wait: so it is opened once more, where the system lets us.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        sock = socket.socket(fileno=os.dup(fd))
        return lambda data: sock.send(data, socket.MSG_DONTWAIT), sock.close
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        try:
            own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:  # not ours to open, or nobody reads any more
            own = os.dup(fd)
            os.set_blocking(own, False)
    else:
        own = os.dup(fd)  # a file: it takes whatever comes
    return partial(os.write, own), partial(os.close, own)
