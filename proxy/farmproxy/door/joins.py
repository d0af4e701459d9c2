"""One more connection of a running lease: dialled to the lease's own pod, then relayed like any session.

A join has no say over the lease: its end, however it comes, ends this connection only.
"""

from farmwire.reasons import DialResult, End, Refusal

from farmproxy.door import responses
from farmproxy.door.context import EARLY_LIMIT, NO_MEMORY, Door
from farmproxy.door.request_heads import Head
from farmproxy.door.sessions import head_for_pod, refusal_for, request_for
from farmproxy.net.sockets import Socket, authority
from farmproxy.registry.leases import Lease
from farmproxy.tunnel.tunnels import Tunnel
from farmproxy.upstream.dials import Dialling, Done, OutOfDescriptors
from farmproxy.upstream.handshakes import (
    NOT_RUNNING,
    NOT_TAKEN,
    AnswerReader,
    Failed,
    Leased,
    join_head,
    told_by,
    uid_of,
)


def joining(door: Door, lease: Lease, done: Done, *, allow_origin: bytes = b"") -> Dialling:
    """A dial of the lease's own pod that adds a connection to it; not started."""
    request = join_head(
        authority(lease.address, lease.port),
        lease.id,
        key=door.tokens.agent_key,
        max_s=lease.left_s(door.clock()),
        waited_ms=lease.waited_ms,
        dials=lease.dials,
        public_base=lease.public_base,
        allow_origin=allow_origin.decode("latin-1"),
    )
    reader = AnswerReader(lease.id, uid_of(lease.pod_key), join=True)
    return Dialling(door.dials, lease.address, lease.port, request, reader, done)


def tell_renewed(door: Door, lease: Lease) -> None:
    """Let the agent know the lease's new limit: a join says it, and this one carries no byte."""

    def done(dialling: Dialling, outcome: Leased | Failed) -> None:
        if isinstance(outcome, Leased):
            door.poller.close(dialling.sock)
        else:
            door.log.warning("renewal-unheard", lease=lease.id, result=outcome.result, **told_by(outcome))

    try:
        joining(door, lease, done).start()
    except OutOfDescriptors:
        door.log.warning("renewal-unheard", lease=lease.id, result=Refusal.DESCRIPTORS)


class Join:
    __slots__ = ("_counted", "_dialling", "_door", "_early", "_expects", "_head", "_tunnel", "lease", "sock")

    def __init__(
        self, door: Door, lease: Lease, sock: Socket, head: Head, target: bytes, early: bytearray
    ) -> None:
        self._door = door
        self._head = head_for_pod(head, target)
        self._expects = head.value(b"expect") is not None
        self._early = early
        self._counted = 0  # early bytes, as the door's budget knows them
        self._dialling: Dialling | None = None
        self._tunnel: Tunnel | None = None
        self.lease = lease
        self.sock = sock

    def start(self) -> None:
        door, lease = self._door, self.lease
        door.poller.hand_over(self.sock, self._on_waiting)
        dialling = joining(door, lease, self._dialled, allow_origin=door.allowed.get(self.sock.fileno(), b""))
        try:
            dialling.start()
        except OutOfDescriptors:
            door.refuse(self.sock, Refusal.DESCRIPTORS, "the proxy has no descriptor left")
            return
        self._dialling = dialling
        if lease.joins is None:
            lease.joins = set()
        lease.joins.add(self)
        door.joined(lease)

    @property
    def idle(self) -> bool:
        return self._tunnel is not None and self._tunnel.idle

    def close(self, end: End) -> None:
        """The lease is over."""
        if self._tunnel is not None:
            self._tunnel.close(end)
        elif self._dialling is not None:
            self._refuse(Refusal.NOT_FOUND, "the lease has ended")

    def _dialled(self, dialling: Dialling, outcome: Leased | Failed) -> None:
        self._dialling = None
        if isinstance(outcome, Leased):
            self._begin(dialling)
            return
        self._left()
        if outcome.status == NOT_RUNNING:
            self._door.refuse(self.sock, Refusal.NOT_FOUND, "no such lease")
        elif outcome.result is DialResult.CALLER:
            self._door.metrics.refusals[Refusal.CALLER].inc()
            self._door.say(self.sock, responses.passed_on(outcome.status, outcome.body))
        elif outcome.result is DialResult.REJECTED:
            self._door.log.error("handshake-rejected", pod=self.lease.pod, **told_by(outcome))
            self._door.refuse(self.sock, Refusal.PROXY_FAULT, NOT_TAKEN)
        else:
            self._door.refuse(
                self.sock, Refusal.POD_LOST, f"the lease's pod cannot be joined: {outcome.result}"
            )

    def _begin(self, dialling: Dialling) -> None:
        data = request_for(dialling, self._head, self._early)
        self._forget_early()
        self._tunnel = Tunnel(self._door.relays, self.sock, dialling.sock, self._ended)
        try:
            sent = dialling.sock.send(data)
        except OSError:
            self._tunnel.close(End.POD_LOST)
            return
        if self._expects:
            self._say_continue()
        self._tunnel.start(sent, data[sent:])
        self._tunnel.limit_idle(lambda: self._door.driver.idle(self.lease))

    def _say_continue(self) -> None:
        try:
            self.sock.send(responses.CONTINUE)
        except OSError:
            return  # the relay sees the same at once

    def _on_waiting(self, _mask: int) -> None:
        try:
            data = self.sock.recv(EARLY_LIMIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.give_up()
            return
        self._early += data
        if len(self._early) > EARLY_LIMIT:
            self._refuse(Refusal.BODY_TOO_LARGE, f"more than {EARLY_LIMIT} bytes ahead of the session")
        elif not self._door.reserve(len(data)):
            self._refuse(Refusal.QUEUE_FULL, NO_MEMORY)
        else:
            self._counted += len(data)

    def _refuse(self, reason: Refusal, detail: str) -> None:
        if self._dialling is not None:
            self._dialling.abandon()
            self._dialling = None
        self._left()
        self._door.refuse(self.sock, reason, detail)

    def give_up(self) -> None:
        """The caller is gone before its session (or a fault of ours makes it so)."""
        if self._dialling is not None:
            self._dialling.abandon()
            self._dialling = None
        self._door.poller.close(self.sock)
        self._left()

    def _ended(self, end: End, kept: bool) -> None:
        tunnel = self._tunnel
        assert tunnel is not None
        self._tunnel = None  # each knows the other: let go, or only the cycle collector could free them
        self.lease.bytes_up += tunnel.bytes_up
        self.lease.bytes_down += tunnel.bytes_down
        self._left()
        if kept:
            self._door.refuse(self.sock, *refusal_for(end))

    def _forget_early(self) -> None:
        self._door.reserve(-self._counted)
        self._counted = 0
        self._early = bytearray()

    def _left(self) -> None:
        self._forget_early()
        joins = self.lease.joins
        if joins is not None and self in joins:
            joins.discard(self)
            self._door.parted(self.lease)
