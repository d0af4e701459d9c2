"""One direction of a session: read, write at once, keep what the other side does not take. Nothing is read while
something is unwritten, so memory is bounded by one buffer a direction.

Bulk goes by splice(2): through a pipe, without being copied through Python.
"""

import os
from typing import Protocol

from farmproxy.net.sockets import Socket
from farmproxy.tunnel.pipes import PIPE_BYTES, SPLICE_FLAGS, Pipe, Pipes

_SIZE = 64 * 1024
_BUFFER = bytearray(_SIZE)  # one for all: what is not written at once is copied out of it
_VIEW = memoryview(_BUFFER)
_BULK_READS = 4  # full reads in a row that make a direction bulk
_SMALL_READS = 16  # small reads in a row that end it
_SMALL = 16 * 1024


class SourceClosed(Exception):  # an outcome
    """FIN: everything that came before it is written."""


class SourceBroke(Exception):  # an outcome
    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class SinkBroke(SourceBroke):
    pass


class BytesTold(Protocol):
    """Where relayed bytes are counted."""

    bytes_up: int
    bytes_down: int


class Flow:
    """``total``: bytes written. ``quiet`` and ``queued`` belong to who looks for stalls."""

    __slots__ = (
        "_bulk",
        "_pending",
        "_pipe",
        "_pipes",
        "_small",
        "_told",
        "dst",
        "queued",
        "quiet",
        "src",
        "total",
        "up",
        "waits",
    )

    def __init__(self, src: Socket, dst: Socket, pipes: Pipes, told: BytesTold, *, up: bool) -> None:
        self.src = src
        self.dst = dst
        self.up = up
        self.waits = False  # something is read and not written
        self.total = 0
        self.queued = -1
        self.quiet = 0
        self._pending: bytes | memoryview = b""
        self._pipe: Pipe | None = None
        self._pipes = pipes
        self._told = told
        self._bulk = 0
        self._small = 0

    def begin(self, sent: int, pending: bytes) -> None:
        """The first bytes did not come from the source: so many are written, these are not."""
        self._count(sent)
        if pending:
            self._pending = memoryview(pending)
            self.waits = True

    def pump(self) -> bool:
        """Read once and write it; only while nothing waits. Raises when a side is at its end. Whether that surely was
        all that had come (a read that a pipe or buffer cut short says nothing).
        """
        if self._pipe is not None:
            self._pump_pipe(self._pipe)
            return False
        try:
            size = self.src.recv_into(_BUFFER)
        except BlockingIOError:
            return False
        except OSError as error:
            raise SourceBroke(error.errno) from None
        if not size:
            raise SourceClosed
        try:
            sent = self.dst.send(_VIEW[:size])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise SinkBroke(error.errno) from None
        self._count(sent)
        if sent < size:
            self._pending = memoryview(bytes(_VIEW[sent:size]))
            self.waits = True
        if size == _SIZE:
            self._see_bulk()
            return False
        self._bulk = 0
        return True

    def flush(self) -> int:
        """Write what waits, as much as is taken; how much that was."""
        try:
            if self._pending:
                sent = self.dst.send(self._pending)
                self._pending = self._pending[sent:]
            else:
                sent = self._from_pipe()
        except BlockingIOError:
            return 0
        except OSError as error:
            raise SinkBroke(error.errno) from None
        self._count(sent)
        self.waits = bool(self._pending) or (self._pipe is not None and self._pipe.held > 0)
        return sent

    def drop(self) -> None:
        """Forget what waits, and give the pipe back."""
        self.waits = False
        self._pending = b""
        if self._pipe is not None:
            self._pipes.give_back(self._pipe)
            self._pipe = None

    def _pump_pipe(self, pipe: Pipe) -> None:
        try:
            size = os.splice(self.src.fileno(), pipe.write_fd, PIPE_BYTES, flags=SPLICE_FLAGS)
        except BlockingIOError:
            return
        except OSError as error:
            raise SourceBroke(error.errno) from None
        if not size:
            raise SourceClosed
        pipe.held = size
        self.waits = True
        self.flush()
        if size >= _SMALL:
            self._small = 0
            return
        self._small += 1
        if self._small >= _SMALL_READS and not self.waits:
            self.drop()

    def _from_pipe(self) -> int:
        pipe = self._pipe
        if pipe is None:
            return 0
        sent = os.splice(pipe.read_fd, self.dst.fileno(), pipe.held, flags=SPLICE_FLAGS)
        pipe.held -= sent
        return sent

    def _see_bulk(self) -> None:
        self._bulk += 1
        if self._bulk >= _BULK_READS:
            self._bulk = self._small = 0
            # With something pending still: it is written before the pipe is read into.
            self._pipe = self._pipes.lend()

    def _count(self, sent: int) -> None:
        self.total += sent
        if self.up:
            self._told.bytes_up += sent
        else:
            self._told.bytes_down += sent
