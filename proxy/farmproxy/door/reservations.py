"""The caller of POST /leases: it waits like any other, gets the lease's names, and goes its way.

The proxy's own connection to the agent is the lease; it carries no byte, and nobody's socket but that one ends it.
"""

from typing import Protocol

from farmwire import paths
from farmwire.reasons import End, Refusal

from farmproxy.door import responses
from farmproxy.door.context import CALLER_COST, Door
from farmproxy.net.sockets import Socket, is_open, tune
from farmproxy.registry.leases import Lease, moment_in
from farmproxy.upstream.dials import Dialling

_CHUNK = 16 * 1024


class Asked(Protocol):
    """The connection that POST /leases came by, answered when there is a lease."""

    @property
    def sock(self) -> Socket: ...

    def answered(self, answer: bytes) -> None: ...

    def keep_next(self, data: bytes) -> tuple[Refusal, str] | None:
        """Bytes of the next request; why they cannot be kept."""

    def release(self) -> None:
        """Nothing of it is kept any more."""


class Reservation:
    """Implements ``driver.LeaseRequest``."""

    __slots__ = ("_connection", "_door", "_host", "_pod", "_secure", "_sock", "lease")

    def __init__(self, door: Door, lease: Lease, connection: Asked, host: str, *, secure: bool) -> None:
        self._door = door
        self._connection: Asked | None = connection  # until it is answered
        self._sock = connection.sock
        self._host = host
        self._secure = secure
        self._pod: Socket | None = None
        self.lease = lease

    def arrive(self, hold_s: float, cost: int) -> None:
        sock = self._sock
        self._door.poller.hand_over(sock, self._on_waiting)
        self._door.driver.arrive(self, hold_s, cost + CALLER_COST)

    # --- as the driver's lease request

    @property
    def idle(self) -> bool:
        return True  # its joins are all there is to hear

    def take(self, pod: Dialling) -> bool:
        self._pod = pod.sock
        tune(pod.sock, self._door.settings.keepalive_s)
        self._door.poller.hand_over(pod.sock, self._on_pod)
        return True

    def begin(self) -> None:
        door = self._door
        if self._pod is None:
            return
        if not is_open(self._sock):
            self.close(End.DONE)  # nobody would ever know the lease's names
            self._let_go()
            door.poller.close(self._sock)
            return
        door.named[self.lease.id] = self
        door.first_use.start(self)
        connection, self._connection = self._connection, None
        assert connection is not None
        connection.answered(responses.ok(self._told(), status=201))

    def refuse(self, reason: Refusal, detail: str) -> None:
        self._let_go()
        self._door.refuse(self._sock, reason, detail)

    def pass_on(self, status: int, body: bytes) -> None:
        self._let_go()
        self._door.metrics.refusals[Refusal.CALLER].inc()
        self._door.say(self._sock, responses.passed_on(status, body))

    def close(self, end: End) -> None:
        pod, self._pod = self._pod, None
        if pod is None:
            return
        door = self._door
        door.named.pop(self.lease.id, None)
        door.first_use.stop(self)
        door.rejoin.stop(self)
        door.poller.close(pod)
        door.driver.session_ended(self, end)

    # --- the lease's connections

    def joined(self) -> None:
        self._door.first_use.stop(self)
        self._door.rejoin.stop(self)

    def parted(self) -> None:
        """A connection closed; after the last the rejoin limit runs."""
        if not self.lease.joins and self._pod is not None:
            self._door.rejoin.start(self)

    def unused(self) -> None:
        self.close(End.FIRST_USE)

    def left_alone(self) -> None:
        self.close(End.REJOIN)

    # ---

    def _told(self) -> dict[str, object]:
        lease = self.lease
        base = f"{self._host}{paths.LEASES}/{lease.id}.{lease.key}"
        tls = "s" if self._secure else ""
        return {
            "id": lease.id,
            "pod": lease.pod,
            "label": lease.label,
            "expires_at": moment_in(lease.expires_at - self._door.clock()),
            "connect_by": moment_in(self._door.settings.first_use_s),
            "urls": {
                "http": f"http{tls}://{base}",
                "browser_ws": f"ws{tls}://{base}{paths.BROWSER_PREFIX}",
            },
        }

    def give_up(self) -> None:
        """A fault of ours."""
        if self._pod is None:
            self._leave()
        else:
            self.close(End.POD_LOST)

    def _on_waiting(self, _mask: int) -> None:
        """It left, or sends its next request already: that waits for its turn, in counted memory."""
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or self._connection is None:
            self._leave()
            return
        why = self._connection.keep_next(data)
        if why is not None:
            self._door.driver.leave(self)
            self.refuse(*why)

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.release()

    def _leave(self) -> None:
        self._let_go()
        self._door.poller.close(self._sock)
        self._door.driver.leave(self)

    def _on_pod(self, _mask: int) -> None:
        """The agent closed the lease's connection, or says something on it that means nothing."""
        pod = self._pod
        if pod is None:
            return
        try:
            if pod.recv(4096):
                return
            end = End.DONE
        except BlockingIOError:
            return
        except OSError:
            end = End.POD_LOST
        self.lease.by_pod = True
        self.close(end)
