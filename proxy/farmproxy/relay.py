"""A session's bytes, both ways, between a caller's socket and its pod's: read, write at once, wait only when the
other side does not take it. Nothing is read while something is unwritten, so memory is bounded by one buffer a direction.

FIN or RST from either side ends it; what was read is still written, under the stall limit. Bulk goes by splice(2).
"""

import os
import socket
from collections.abc import Callable
from typing import Protocol

from farmwire.reasons import End

from farmproxy.farewells import Farewells
from farmproxy.pipes import PIPE_BYTES, SPLICE_FLAGS, Pipe, Pipes
from farmproxy.poller import BROKEN, GONE, READ, WRITE, Poller
from farmproxy.sockets import LOST_ERRNOS, Socket, unheard_s
from farmproxy.timeouts import Timeouts

_SIZE = 64 * 1024
_BUFFER = bytearray(_SIZE)  # one for all: what is not written at once is copied out of it
_VIEW = memoryview(_BUFFER)
_BULK_READS = 4  # full reads in a row that make a direction bulk
_SMALL_READS = 16  # small reads in a row that end it
_SMALL = 16 * 1024
_IDLE_LOOKS = 8  # looks without a caller's byte that make the idle limit: it is kept to an eighth
_ANY = READ | BROKEN


class BytesTold(Protocol):
    """Where relayed bytes are counted."""

    bytes_up: int
    bytes_down: int


class RelayDesk:
    """What all tunnels share."""

    __slots__ = ("farewells", "idle", "keepalive_s", "look", "pipes", "poller", "stall", "told")

    def __init__(
        self,
        poller: Poller,
        farewells: Farewells,
        told: BytesTold,
        clock: Callable[[], float],
        *,
        stall_s: float,
        keepalive_s: float,
        idle_s: float,
    ) -> None:
        """``idle_s`` 0: no idle limit."""
        self.poller = poller
        self.farewells = farewells
        self.told = told
        self.pipes = Pipes()
        self.keepalive_s = keepalive_s
        self.stall: Timeouts[tuple[Tunnel, bool]] = Timeouts(stall_s, clock)
        self.look: Timeouts[Tunnel] = Timeouts(keepalive_s, clock)
        self.idle: Timeouts[Tunnel] | None = Timeouts(idle_s / _IDLE_LOOKS, clock) if idle_s else None

    def sweep(self) -> None:
        """End the tunnels in which one side took nothing for the stall limit, or has vanished."""
        for tunnel, up in self.stall.expired():
            tunnel.stalled(up=up)
        for tunnel in self.look.expired():
            tunnel.look()
        for tunnel in self.idle.expired() if self.idle is not None else ():
            tunnel.look_idle()


class Flow:
    """One direction. ``pending`` is what was read and not written; ``total`` what was written."""

    __slots__ = ("bulk", "dst", "pending", "pipe", "small", "src", "total", "up")

    def __init__(self, src: Socket, dst: Socket, *, up: bool) -> None:
        self.src = src
        self.dst = dst
        self.up = up
        self.total = 0
        self.pending: bytes | memoryview = b""
        self.pipe: Pipe | None = None
        self.bulk = 0
        self.small = 0


class Tunnel:
    """``ended(end)`` is called once; the pod's socket is closed then, and the caller's too unless no byte of the answer
    was sent (``answered`` is False) and the caller is still there: it then belongs to the owner.
    """

    __slots__ = (
        "_caller_mask",
        "_desk",
        "_down",
        "_ended",
        "_heard",
        "_leaving",
        "_muted",
        "_on_idle",
        "_pod_mask",
        "_quiet",
        "_suspected",
        "_up",
        "by_pod",
        "caller",
        "over",
        "pod",
    )

    def __init__(
        self, desk: RelayDesk, caller: Socket, pod: Socket, ended: Callable[[End, bool], None]
    ) -> None:
        """Both sockets are watched by the poller already; call ``start`` once."""
        self._desk = desk
        self._ended = ended
        self._up = Flow(caller, pod, up=True)
        self._down = Flow(pod, caller, up=False)
        self._leaving = False  # the caller is gone; only what it sent still goes to the pod
        self._muted = False  # the pod takes nothing more; what it sent still goes to the caller
        self._suspected = 0  # sides (1 caller, 2 pod) that left something unacknowledged at the last look
        self._caller_mask = 0  # unknown: the caller's owner may have stopped reading
        self._pod_mask = READ  # as the dial left it
        self.caller = caller
        self.pod = pod
        self.over = False
        self.by_pod = False  # the pod's side ended it
        self._heard = 0  # bytes from the caller at the last look
        self._quiet = 0  # looks since there was a new one
        self._on_idle: Callable[[], None] | None = None

    def start(self, sent: int, pending: bytes) -> None:
        """Begin: ``sent`` bytes were written to the pod, ``pending`` are still to be."""
        poller = self._desk.poller
        poller.hand_over(self.caller, self._on_caller)
        poller.hand_over(self.pod, self._on_pod)
        self._desk.look.start(self)
        self._up.total = sent
        self._desk.told.bytes_up += sent
        if pending:
            self._block(self._up, pending)
        else:
            self._arm()

    @property
    def answered(self) -> bool:
        return self._down.total > 0

    @property
    def bytes_up(self) -> int:
        return self._up.total

    @property
    def bytes_down(self) -> int:
        return self._down.total

    def limit_idle(self, on_idle: Callable[[], None]) -> None:
        """Call ``on_idle`` at each look that finds the caller silent for the idle limit, if there is one."""
        if self._desk.idle is not None:
            self._on_idle = on_idle
            self._desk.idle.start(self)

    @property
    def idle(self) -> bool:
        return self._quiet >= _IDLE_LOOKS

    def look_idle(self) -> None:
        assert self._desk.idle is not None
        assert self._on_idle is not None
        self._desk.idle.start(self)
        self._quiet = self._quiet + 1 if self._up.total == self._heard else 0
        self._heard = self._up.total
        if self.idle:
            self._on_idle()

    def close(self, end: End) -> None:
        """End it now, from outside."""
        self._finish(end)

    def give_up(self) -> None:
        """A fault of ours."""
        self._finish(End.POD_LOST, abort=True)

    def stalled(self, *, up: bool) -> None:
        """The destination of this direction took nothing for the stall limit."""
        if self.over:
            return
        if up:
            # The lease's time is not for waiting on a pod that takes nothing.
            self._finish(End.DONE if self._leaving else End.POD_LOST, abort=True)
            return
        _, silent_s = unheard_s(self.caller)
        vanished = silent_s > 2 * self._desk.keepalive_s
        self._finish(End.CALLER_LOST if vanished else End.STALL, abort=True)

    def look(self) -> None:
        """Once in a keepalive time: end it if what was sent to a side has gone unacknowledged since the last look."""
        suspected, self._suspected = self._suspected, 0
        for side, sock in ((1, self.caller), (2, self.pod)):
            waits, silent_s = unheard_s(sock)
            if not waits or silent_s < self._desk.keepalive_s:
                continue
            if not suspected & side:
                self._suspected |= side
                continue
            self.by_pod = side == 2
            self._finish(End.POD_LOST if self.by_pod else End.CALLER_LOST, abort=True)
            return
        self._desk.look.start(self)

    def _on_caller(self, mask: int) -> None:
        if mask & WRITE and self._waits(self._down):
            self._flush(self._down)
        if self.over or not mask & _ANY:
            return
        if self._waits(self._up) or self._muted:
            if mask & BROKEN:
                self._caller_broke(self.caller.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            elif mask & GONE:
                self._leave()
        else:
            self._pump(self._up)

    def _on_pod(self, mask: int) -> None:
        if mask & WRITE and self._waits(self._up):
            self._flush(self._up)
        if self.over or not mask & _ANY:
            return
        if not self._waits(self._down) and not self._leaving:
            self._pump(self._down)
        elif mask & BROKEN:
            self.by_pod = not self._leaving
            self._finish(End.DONE if self._leaving else End.POD_LOST, abort=True)

    @staticmethod
    def _waits(flow: Flow) -> bool:
        return bool(flow.pending) or (flow.pipe is not None and flow.pipe.held > 0)

    def _pump(self, flow: Flow) -> None:
        if flow.pipe is not None:
            self._pump_pipe(flow, flow.pipe)
            return
        try:
            size = flow.src.recv_into(_BUFFER)
        except BlockingIOError:
            return
        except OSError as error:
            self._source_broke(flow, error)
            return
        if not size:
            self._source_closed(flow)
            return
        try:
            sent = flow.dst.send(_VIEW[:size])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._sink_broke(flow, error)
            return
        self._count(flow, sent)
        if sent < size:
            self._block(flow, bytes(_VIEW[sent:size]))
        if size < _SIZE:
            flow.bulk = 0
            return
        flow.bulk += 1
        if flow.bulk >= _BULK_READS and not flow.pending:
            flow.pipe = self._desk.pipes.lend()
            flow.bulk = 0

    def _pump_pipe(self, flow: Flow, pipe: Pipe) -> None:
        try:
            size = os.splice(flow.src.fileno(), pipe.write_fd, PIPE_BYTES, flags=SPLICE_FLAGS)
        except BlockingIOError:
            return
        except OSError as error:
            self._source_broke(flow, error)
            return
        if not size:
            self._source_closed(flow)
            return
        pipe.held = size
        self._flush(flow)
        if self.over or pipe.held:
            return
        flow.small = flow.small + 1 if size < _SMALL else 0
        if flow.small >= _SMALL_READS:
            self._release(flow)

    def _flush(self, flow: Flow) -> None:
        """Write what waits; open the source again once nothing does."""
        try:
            if flow.pending:
                sent = flow.dst.send(flow.pending)
                flow.pending = flow.pending[sent:]
            else:
                pipe = flow.pipe
                assert pipe is not None
                sent = os.splice(pipe.read_fd, flow.dst.fileno(), pipe.held, flags=SPLICE_FLAGS)
                pipe.held -= sent
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._sink_broke(flow, error)
            return
        self._count(flow, sent)
        if self._waits(flow):
            key = (self, flow.up)
            self._desk.stall.start(key)
        else:
            self._desk.stall.stop((self, flow.up))
            if self._leaving and flow.up:
                self._finish(End.DONE)
                return
        self._arm()

    def _count(self, flow: Flow, sent: int) -> None:
        flow.total += sent
        if flow.up:
            self._desk.told.bytes_up += sent
        else:
            self._desk.told.bytes_down += sent

    def _block(self, flow: Flow, pending: bytes) -> None:
        flow.pending = memoryview(pending)
        self._desk.stall.start((self, flow.up))
        self._arm()

    def _arm(self) -> None:
        """Ask the poller for what is needed now, where that changed."""
        caller, pod = GONE, 0
        if self._waits(self._up):
            pod = WRITE
        elif not self._muted:
            caller = READ
        if self._leaving:
            caller = 0
        elif self._waits(self._down):
            caller |= WRITE
        else:
            pod |= READ
        if caller != self._caller_mask:
            self._caller_mask = caller
            self._desk.poller.change(self.caller, caller)
        if pod != self._pod_mask:
            self._pod_mask = pod
            self._desk.poller.change(self.pod, pod)

    def _source_closed(self, flow: Flow) -> None:
        # Nothing waits here: a source is read only when all before is written.
        if flow.up:
            self._finish(End.DONE, caller_gone=True)
            return
        self.by_pod = True
        self._finish(End.DONE if self.answered else End.POD_LOST)

    def _source_broke(self, flow: Flow, error: OSError) -> None:
        if flow.up:
            self._caller_broke(error.errno)
        else:
            self.by_pod = True
            self._finish(End.POD_LOST, abort=True)

    def _sink_broke(self, flow: Flow, error: OSError) -> None:
        if not flow.up:
            self._caller_broke(error.errno)
            return
        # The pod may have answered and closed before it read everything: its answer is still to be had.
        self._drop(flow)
        self._muted = True
        self._arm()

    def _caller_broke(self, code: int | None) -> None:
        self._finish(End.CALLER_LOST if code in LOST_ERRNOS else End.DONE, caller_gone=True)

    def _leave(self) -> None:
        """The caller is gone while what it sent waits for the pod."""
        if self._muted or not self._waits(self._up):
            self._finish(End.DONE, caller_gone=True)
            return
        self._leaving = True
        self._drop(self._down)
        self._arm()

    def _drop(self, flow: Flow) -> None:
        """Forget what waits in this direction."""
        if self._waits(flow):
            flow.pending = b""
            self._desk.stall.stop((self, flow.up))
        self._release(flow)

    def _release(self, flow: Flow) -> None:
        if flow.pipe is not None:
            self._desk.pipes.give_back(flow.pipe)
            flow.pipe = None
        flow.small = 0

    def _finish(self, end: End, *, caller_gone: bool = False, abort: bool = False) -> None:
        if self.over:
            return
        self.over = True
        self._desk.look.stop(self)
        if self._desk.idle is not None:
            self._desk.idle.stop(self)
        unread = self._muted or self._waits(self._up)
        self._drop(self._up)
        self._drop(self._down)
        poller = self._desk.poller
        poller.close(self.pod)
        kept = not caller_gone and not self._leaving and not self.answered
        if not kept:
            if abort:
                poller.abort(self.caller)
            elif unread and not caller_gone:
                self._desk.farewells.say(self.caller, b"")
            else:
                poller.close(self.caller)
        self._ended(end, kept)
