"""A caller with a session of its own: a WebSocket or a render job, from its head to the end of its connection.

While it waits its socket is watched: FIN or RST frees its place at once; what it sends is read, so that none stays in the
kernel's memory, kept up to a bound and counted at what it costs. Who sends more is refused, and nobody else is.
"""

from farmwire.reasons import End, Refusal

from farmproxy.door import responses
from farmproxy.door.context import CALLER_COST, EARLY_LIMIT, Door
from farmproxy.door.lease_options import OWN_HEADERS
from farmproxy.door.request_heads import Head, for_pod
from farmproxy.door.routes import BODY_LIMIT
from farmproxy.net.sockets import Socket, authority
from farmproxy.registry.leases import Kind, Lease
from farmproxy.tunnel.tunnels import Tunnel
from farmproxy.upstream.dials import Dialling

_NOT_FOR_PODS = OWN_HEADERS | {b"host", b"origin", b"authorization", b"expect"}
_CHUNK = 64 * 1024
_UNANSWERED = {
    End.MAX: (Refusal.LEASE_MAX, "the lease reached its longest time before the answer began"),
    End.IDLE: (Refusal.LEASE_MAX, "the lease reached its idle limit before the answer began"),
    End.DRAINED: (Refusal.DRAINING, "the proxy's drain limit came before the answer began"),
    End.DELETED: (Refusal.POD_LOST, "the lease was deleted before the answer began"),
}
_LOST = (Refusal.POD_LOST, "the pod was lost before the answer began")


def head_for_pod(head: Head, target: bytes) -> tuple[bytes, bytes]:
    """The caller's head as its pod gets it, without the pod's Host."""
    return for_pod(head, target, drop=_NOT_FOR_PODS)


def request_for(pod: Dialling, head: tuple[bytes, bytes], early: bytearray) -> bytes:
    """The first bytes of a session: the caller's head for this very pod, and what came after it."""
    start, rest = head
    return b"".join((start, authority(pod.address, pod.port).encode(), rest, early))


def refusal_for(end: End) -> tuple[Refusal, str]:
    """What a caller is told that has not got a byte of its answer."""
    return _UNANSWERED.get(end, _LOST)


class Session:
    """Implements ``driver.LeaseRequest``."""

    __slots__ = (
        "_door",
        "_early",
        "_early_limit",
        "_expects",
        "_head",
        "_sent",
        "_tunnel",
        "_whole",
        "lease",
        "sock",
    )

    def __init__(
        self, door: Door, lease: Lease, sock: Socket, head: Head, target: bytes, early: bytearray
    ) -> None:
        self._door = door
        # As the pod will get it: the parsed head would cost three times that while the caller is held.
        self._head: tuple[bytes, bytes] | None = head_for_pod(head, target)
        self._early = early  # what came after the head
        self._expects = (head.value(b"expect") or b"").lower() == b"100-continue"
        self._sent = 0
        self._whole = head.content_length  # then with the head: when the caller has said all; 0: nobody knows
        self._tunnel: Tunnel | None = None
        self.lease = lease
        self.sock = sock
        self._early_limit = EARLY_LIMIT + (BODY_LIMIT if head.chunked else head.content_length)

    def arrive(self, hold_s: float) -> None:
        self._door.poller.hand_over(self.sock, self._on_waiting)
        self._door.driver.arrive(self, hold_s, self._cost)

    # --- as the driver's lease request

    @property
    def idle(self) -> bool:
        return self._tunnel is not None and self._tunnel.idle

    def take(self, pod: Dialling) -> bool:
        assert self._head is not None
        data = request_for(pod, self._head, self._early)
        try:
            sent = pod.sock.send(data)
        except OSError:
            return False
        self._tunnel = Tunnel(self._door.relays, self.sock, pod.sock, self._ended)
        if self._whole:
            self._whole += len(data) - len(self._early)
        self._early = bytearray(data[sent:])
        self._sent = sent
        return True

    def begin(self) -> None:
        tunnel = self._tunnel
        assert tunnel is not None
        self._head = None  # thousands of sessions would keep theirs for nothing
        if tunnel.over:
            return
        if self._expects:
            self._say_continue()
        left, self._early = bytes(self._early), bytearray()
        tunnel.start(self._sent, left, self._whole)
        if self.lease.kind is Kind.SOCKET:  # who waits for the answer of a job is silent by nature
            tunnel.limit_idle(lambda: self._door.driver.idle(self.lease))

    def refuse(self, reason: Refusal, detail: str) -> None:
        self._door.refuse(self.sock, reason, detail)

    def pass_on(self, status: int, body: bytes) -> None:
        self._door.metrics.refusals[Refusal.CALLER].inc()
        self._door.log.info("caller-refused", reason=Refusal.CALLER)
        self._door.say(self.sock, responses.passed_on(status, body))

    def close(self, end: End) -> None:
        if self._tunnel is not None:
            self._tunnel.close(end)

    # ---

    def _on_waiting(self, _mask: int) -> None:
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._keep(data)
        else:
            self.give_up()

    def give_up(self) -> None:
        """The caller is gone before its session (or a fault of ours makes it so)."""
        self._door.poller.close(self.sock)
        self._door.driver.leave(self)

    @property
    def _cost(self) -> int:
        assert self._head is not None
        return CALLER_COST + len(self._head[1]) + len(self._early)

    def _keep(self, data: bytes) -> None:
        self._early += data
        if len(self._early) <= self._early_limit:
            self._door.driver.grow(self, self._cost)
            return
        self._door.driver.leave(self)
        detail = f"more than {self._early_limit} bytes ahead of the session"
        self._door.refuse(self.sock, Refusal.BODY_TOO_LARGE, detail)

    def _say_continue(self) -> None:
        try:
            self.sock.send(responses.CONTINUE)
        except OSError:
            return  # the relay sees the same at once

    def _ended(self, end: End, kept: bool) -> None:
        tunnel, lease = self._tunnel, self.lease
        assert tunnel is not None
        self._tunnel = None  # each knows the other: let go, or only the cycle collector could free them
        lease.bytes_up, lease.bytes_down = tunnel.bytes_up, tunnel.bytes_down
        lease.by_pod = tunnel.by_pod
        self._door.driver.session_ended(self, end)
        if kept:
            self._door.refuse(self.sock, *refusal_for(end))
