"""A session's bytes between a caller's socket and its pod's, and when that ends.

FIN or RST from either side ends it: no half-close is offered. What was read before is still written, and an answer that a
pod gave before it closed is still read, under the stall limit. A side that vanished without FIN is given up by keepalive,
or by what it leaves unacknowledged.
"""

import socket
from collections.abc import Callable

from farmwire.reasons import End

from farmproxy.net.poller import BROKEN, GONE, READ, WRITE, Poller
from farmproxy.net.sockets import LOST_ERRNOS, Socket, queued_bytes, tune, unheard_s
from farmproxy.net.timeouts import Timeouts
from farmproxy.tunnel.flows import BytesTold, Flow, SinkBroke, SourceBroke, SourceClosed
from farmproxy.tunnel.lingering_close import LingeringClose
from farmproxy.tunnel.pipes import Pipes

_LOOKS = 8  # looks that find nothing moved make the stall or idle limit, which is so kept to an eighth
_ANY = READ | BROKEN
_CALLER, _POD = 1, 2


class RelayDesk:
    """What all tunnels share."""

    __slots__ = ("idle", "keepalive_s", "lingering_close", "look", "pipes", "poller", "stall", "told")

    def __init__(
        self,
        poller: Poller,
        lingering_close: LingeringClose,
        told: BytesTold,
        clock: Callable[[], float],
        *,
        stall_s: float,
        keepalive_s: float,
        idle_s: float,
    ) -> None:
        """``idle_s`` 0: no idle limit."""
        self.poller = poller
        self.lingering_close = lingering_close
        self.told = told
        self.pipes = Pipes()
        self.keepalive_s = keepalive_s
        self.stall: Timeouts[tuple[Tunnel, bool]] = Timeouts(stall_s / _LOOKS, clock)
        self.look: Timeouts[Tunnel] = Timeouts(keepalive_s, clock)
        self.idle: Timeouts[Tunnel] | None = Timeouts(idle_s / _LOOKS, clock) if idle_s else None

    def sweep(self) -> None:
        """Look at the tunnels whose turn it is."""
        for tunnel, up in self.stall.expired():
            tunnel.look_stalled(up=up)
        for tunnel in self.look.expired():
            tunnel.look_vanished()
        for tunnel in self.idle.expired() if self.idle is not None else ():
            tunnel.look_idle()


class Tunnel:
    """``ended(end, kept)`` is called once. The pod's socket is closed or lingers then, and so the caller's unless ``kept``: no byte
    of the answer was sent and the caller is still there, so that its owner can say why.
    """

    __slots__ = (
        "_caller_mask",
        "_desk",
        "_down",
        "_ended",
        "_heard",
        "_leaving",
        "_looked",
        "_muted",
        "_on_idle",
        "_pod_mask",
        "_quiet",
        "_suspected",
        "_up",
        "_whole",
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
        self._up = Flow(caller, pod, desk.pipes, desk.told, up=True)
        self._down = Flow(pod, caller, desk.pipes, desk.told, up=False)
        self._leaving = False  # the caller is gone; what it sent still goes to the pod
        self._muted = False  # the pod takes nothing more; what it sent still goes to the caller
        self._looked = False
        self._suspected = 0  # sides that left something unacknowledged at the last look
        self._caller_mask = self._pod_mask = READ
        self._heard = 0  # bytes from the caller at the last look at its idleness
        self._quiet = 0  # such looks since there was a new one
        self._on_idle: Callable[[], None] | None = None
        self._whole = 0
        self.caller = caller
        self.pod = pod
        self.over = False
        self.by_pod = False  # the pod's side ended it

    def start(self, sent: int, pending: bytes, whole: int = 0) -> None:
        """Begin: ``sent`` bytes were written to the pod, ``pending`` are still to be. ``whole``: after so many bytes the
        caller has nothing more to say, 0 where nobody knows.
        """
        self._whole = whole
        desk = self._desk
        desk.poller.hand_over(self.caller, self._on_caller)
        desk.poller.hand_over(self.pod, self._on_pod)
        desk.look.start(self)
        self._up.begin(sent, pending)
        if pending:
            self._blocked(self._up)
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

    @property
    def idle(self) -> bool:
        return self._quiet >= _LOOKS

    def limit_idle(self, on_idle: Callable[[], None]) -> None:
        """Call ``on_idle`` at each look that finds the caller silent for the idle limit, if there is one."""
        if self._desk.idle is not None:
            self._on_idle = on_idle
            self._desk.idle.start(self)

    def close(self, end: End) -> None:
        """End it now, from outside."""
        self._finish(end)

    def give_up(self) -> None:
        """A fault of ours."""
        self._finish(End.POD_LOST, abort=True)

    # --- looks

    def look_idle(self) -> None:
        assert self._desk.idle is not None
        assert self._on_idle is not None
        self._desk.idle.start(self)
        self._quiet = self._quiet + 1 if self._up.total == self._heard else 0
        self._heard = self._up.total
        if self.idle:
            self._on_idle()

    def look_stalled(self, *, up: bool) -> None:
        """End it if the destination of this direction has taken nothing for the stall limit.

        The poller tells of room only when a good part of the kernel's buffer is empty: for a slow reader of small bites
        that may take longer than the limit. What counts is whether that buffer shrinks.
        """
        flow = self._up if up else self._down
        queued = queued_bytes(flow.dst)
        flow.quiet = flow.quiet + 1 if queued == flow.queued else 0
        flow.queued = queued
        if flow.quiet < _LOOKS:
            self._desk.stall.start((self, up))
        elif up:
            self.by_pod = not self._leaving
            self._finish(End.DONE if self._leaving else End.POD_LOST, abort=True)
        else:
            _, silent_s = unheard_s(self.caller)
            vanished = silent_s > 2 * self._desk.keepalive_s
            self._finish(End.CALLER_LOST if vanished else End.STALL, abort=True)

    def look_vanished(self) -> None:
        """Once in a keepalive time: end it if what was sent to a side has gone unacknowledged since the last look.

        The pod's keepalive starts with the first look (the kernel counts the silence before it): most sessions end sooner.
        """
        if not self._looked:
            self._looked = True
            tune(self.pod, self._desk.keepalive_s)
        suspected, self._suspected = self._suspected, 0
        for side, sock in ((_CALLER, self.caller), (_POD, self.pod)):
            waits, silent_s = unheard_s(sock)
            if not waits or silent_s < self._desk.keepalive_s:
                continue
            if not suspected & side:
                self._suspected |= side
                continue
            self.by_pod = side == _POD
            self._finish(End.POD_LOST if self.by_pod else End.CALLER_LOST, abort=True)
            return
        self._desk.look.start(self)

    # --- events

    def _on_caller(self, mask: int) -> None:
        if mask & WRITE and self._down.waits:
            self._flush(self._down)
        if self.over or not mask & _ANY:
            return
        if self._up.waits or self._muted:
            if mask & BROKEN:
                self._caller_broke(self.caller.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            elif mask & GONE:
                self._leave()
        else:
            self._pump(self._up, mask)

    def _on_pod(self, mask: int) -> None:
        if mask & WRITE and self._up.waits:
            self._flush(self._up)
        if self.over or not mask & _ANY:
            return
        if self._leaving:
            self._discard()
        elif not self._down.waits:
            self._pump(self._down, mask)
        elif mask & BROKEN:
            self.by_pod = True
            self._finish(End.POD_LOST, abort=True)

    def _discard(self) -> None:
        """Nobody is there for what the pod still says; unread, it could keep the pod from reading."""
        try:
            if self.pod.recv(65536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # it is gone as well
        self._finish(End.DONE)

    def _pump(self, flow: Flow, mask: int) -> None:
        try:
            whole = flow.pump()
        except SourceClosed:
            self._closed(flow)
        except SinkBroke as why:
            self._sink_broke(flow, why.code)
        except SourceBroke as why:
            self._source_broke(flow, why.code)
        else:
            if flow.waits:
                self._blocked(flow)
            elif whole and mask & (GONE | BROKEN) == GONE:
                self._closed(flow)  # FIN had come before the read, so nothing is behind what was read

    def _flush(self, flow: Flow) -> None:
        """Write what waits; open the source again once nothing does."""
        try:
            sent = flow.flush()
        except SinkBroke as why:
            self._sink_broke(flow, why.code)
            return
        if flow.waits:
            if sent:
                self._blocked(flow)
            return
        self._desk.stall.stop((self, flow.up))
        self._arm()

    def _blocked(self, flow: Flow) -> None:
        """The sink takes no more for now: its time begins anew."""
        flow.quiet = 0
        self._desk.stall.start((self, flow.up))
        self._arm()

    def _arm(self) -> None:
        """Ask the poller for what is needed now, where that changed."""
        caller, pod = GONE, 0
        if self._up.waits:
            pod = WRITE
        elif not self._muted:
            caller = READ
        if self._leaving:
            caller = 0 if self._up.waits else READ
            pod |= READ
        elif self._down.waits:
            caller |= WRITE
        else:
            pod |= READ
        if caller != self._caller_mask:
            self._caller_mask = caller
            self._desk.poller.change(self.caller, caller)
        if pod != self._pod_mask:
            self._pod_mask = pod
            self._desk.poller.change(self.pod, pod)

    # --- ends

    def _closed(self, flow: Flow) -> None:
        if flow.up:
            self._finish(End.DONE, caller_gone=True)
            return
        self.by_pod = True
        self._finish(End.DONE if self.answered else End.POD_LOST)

    def _source_broke(self, flow: Flow, code: int | None) -> None:
        if flow.up:
            self._caller_broke(code)
        else:
            self.by_pod = True
            self._finish(End.POD_LOST, abort=True)

    def _sink_broke(self, flow: Flow, code: int | None) -> None:
        if not flow.up:
            self._caller_broke(code)
            return
        # The pod may have answered and closed before it read everything: its answer is still to be had.
        self._drop(flow)
        self._muted = True
        self._arm()

    def _caller_broke(self, code: int | None) -> None:
        self._finish(End.CALLER_LOST if code in LOST_ERRNOS else End.DONE, caller_gone=True)

    def _leave(self) -> None:
        """The caller is gone while what it sent waits for the pod: what it said to its end is still delivered."""
        if self._muted:
            self._finish(End.DONE, caller_gone=True)
            return
        self._leaving = True
        self._drop(self._down)
        self._arm()

    def _drop(self, flow: Flow) -> None:
        if flow.waits:
            self._desk.stall.stop((self, flow.up))
        flow.drop()

    def _finish(self, end: End, *, caller_gone: bool = False, abort: bool = False) -> None:
        if self.over:
            return
        self.over = True
        desk = self._desk
        desk.look.stop(self)
        if desk.idle is not None:
            desk.idle.stop(self)
        # What the caller is still sending would make the kernel overtake the answer with RST.
        unread = self._muted or self._up.waits or self._up.total != self._whole
        self._drop(self._up)
        self._drop(self._down)
        if self._leaving and not abort:
            # At once, and RST for what is unread would overtake what was just written.
            desk.lingering_close.say(self.pod, b"")
        else:
            desk.poller.close(self.pod)
        kept = not caller_gone and not self._leaving and not self.answered
        if not kept:
            if abort:
                desk.poller.abort(self.caller)
            elif unread and not caller_gone:
                desk.lingering_close.say(self.caller, b"")
            else:
                desk.poller.close(self.caller)
        self._ended(end, kept)
