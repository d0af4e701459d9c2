"""The core's only caller: turns what happens on sockets into events, and commands into work on sockets.

Events are handled one after another, each with its commands, in the order they came; nothing here waits.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from farmwire.reasons import FAULTS, DialResult, End, Refusal
from structlog.typing import FilteringBoundLogger

from farmproxy.core import commands as cmd
from farmproxy.core import events as ev
from farmproxy.core.errors import IllegalEvent
from farmproxy.core.farm import Farm
from farmproxy.net.sockets import authority
from farmproxy.net.wakeups import Wakeup
from farmproxy.observe.metrics import Metrics
from farmproxy.registry.lease_log import LeaseLog
from farmproxy.registry.leases import Kind, Lease, LeaseBook
from farmproxy.upstream.dials import DialDesk, Dialling, OutOfDescriptors
from farmproxy.upstream.handshakes import (
    NOT_TAKEN,
    AnswerReader,
    Failed,
    Leased,
    lease_head,
    told_by,
    uid_of,
)
from farmproxy.upstream.readiness_polls import ReadinessPolls

RENEWABLE_MAX_S = 7 * 24 * 3600


class LeaseRequest(Protocol):
    """A caller with its lease-to-be, from arrival to the session's end."""

    lease: Lease

    @property
    def idle(self) -> bool:
        """Whether the caller was silent for the idle limit; true where it has no connection to be heard on."""

    def take(self, pod: Dialling) -> bool:
        """The pod's connection is leased: write the first bytes. False: it is broken, the session did not begin."""

    def begin(self) -> None:
        """The session runs; called once after ``take``, unless it was closed meanwhile."""

    def refuse(self, reason: Refusal, detail: str) -> None:
        """Answer the caller and end its request."""

    def pass_on(self, status: int, body: bytes) -> None:
        """Answer with the agent's own words."""

    def close(self, end: End) -> None:
        """End the session and report ``session_ended``."""


class Driver:
    """``lease_requests``: callers by id, from arrival until their session has ended or they were refused."""

    def __init__(
        self,
        farm: Farm,
        *,
        dials: DialDesk,
        readiness_polls: ReadinessPolls,
        book: LeaseBook,
        metrics: Metrics,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
        agent_key: Callable[[], str | None],
    ) -> None:
        self.farm = farm
        self.lease_requests: dict[str, LeaseRequest] = {}
        self.dialling: dict[str, Dialling] = {}
        self._desk = dials
        self._book = book
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._agent_key = agent_key
        self._events: deque[ev.Event] = deque()
        self._running = False
        self._wakeup: Wakeup | None = None
        self.lease_log = LeaseLog(book, metrics, log)
        readiness_polls.dispatch = self.tell
        readiness_polls.lease_log = self.lease_log
        self._do: dict[type[cmd.Command], Callable[..., None]] = {
            cmd.Dial: self._dial,
            cmd.AbandonDial: self._abandon,
            cmd.Refuse: self._refuse,
            cmd.CloseSession: self._close_session,
            cmd.AskAgent: readiness_polls.ask,
            cmd.StopAsking: readiness_polls.stop,
            cmd.WakeAt: self._wake_at,
        }

    def start(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup

    @property
    def waiting(self) -> int:
        """Callers that have no pod and no dial: they will need a descriptor for each."""
        return len(self.lease_requests) - len(self.dialling) - len(self._book.live)

    def tell(self, event: ev.Event) -> None:
        """Let the core know; its commands are carried out before this returns, unless it runs inside one."""
        if self._running:
            self._events.append(event)
            return
        self._running = True
        try:
            self._handle(event)
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._running = False

    def arrive(self, caller: LeaseRequest, hold_s: float, cost: int) -> None:
        lease = caller.lease
        self.lease_requests[lease.id] = caller
        self.tell(ev.CallerArrived(lease.id, lease.pool, hold_s, lease.max_s, lease.label, cost))

    def grow(self, caller: LeaseRequest, cost: int) -> None:
        """The caller waits, and holds so many bytes by now; it may be refused for that."""
        self.tell(ev.CallerGrew(caller.lease.id, cost))

    def leave(self, caller: LeaseRequest) -> None:
        """The caller is gone before its session began."""
        if self.lease_requests.pop(caller.lease.id, None) is not None:
            self.tell(ev.CallerLeft(caller.lease.id))

    def session_ended(self, caller: LeaseRequest, end: End) -> None:
        """The lease's connection to its pod is closed."""
        lease = caller.lease
        if self.lease_requests.pop(lease.id, None) is None:
            return
        self._book.ended(lease, end)
        for join in list(lease.joins or ()):
            join.close(end)
        self.lease_log.begin(lease)
        self.tell(ev.SessionEnded(lease.id, end))

    def renew(self, lease: Lease, max_s: float) -> None:
        lease.expires_at = self._clock() + max_s
        self.tell(ev.LeaseRenewed(lease.id, max_s))

    def idle(self, lease: Lease) -> None:
        """A connection of this lease reached the idle limit: the lease ends when all have."""
        caller = self.lease_requests[lease.id]
        if caller.idle and all(join.idle for join in lease.joins or ()):
            caller.close(End.IDLE)

    def end_all(self, end: End) -> None:
        """Close every session; the held are refused."""
        for id_, caller in list(self.lease_requests.items()):
            if id_ in self._book.live:
                caller.close(end)
            else:
                self.leave(caller)
                caller.refuse(Refusal.DRAINING, "the proxy is shutting down")

    def wake(self) -> None:
        self.tell(ev.TimePassed())

    def _handle(self, event: ev.Event) -> None:
        try:
            commands = self.farm.handle(event, self._clock())
        except IllegalEvent as error:
            # The core has changed nothing; a bug here must not end the sessions that are well.
            self._log.error("illegal-event", detail=str(error))
            return
        for command in commands:
            self._do[type(command)](command)
        if type(event) is ev.SessionEnded:
            self.lease_log.unless_asked(event.id)

    # --- commands

    def _dial(self, command: cmd.Dial) -> None:
        caller = self.lease_requests[command.id]
        lease = caller.lease
        lease.pod, lease.pod_key = command.pod_name, command.pod
        lease.address, lease.port, lease.dials = command.address, command.port, command.dials
        request = lease_head(
            authority(command.address, command.port),
            lease.id,
            key=self._agent_key(),
            # A lease that may be renewed outlives its first limit; the core ends it, the agent must not.
            max_s=RENEWABLE_MAX_S if lease.kind is Kind.NAMED else max(1, round(lease.max_s)),
            waited_ms=int(command.waited_s * 1000),
            dials=command.dials,
            public_base=lease.public_base,
            launch=lease.launch,
            allow_origin=lease.allow_origin,
        )
        dialling = Dialling(
            self._desk,
            command.address,
            command.port,
            request,
            AnswerReader(lease.id, uid_of(command.pod)),
            partial(self._dialled, command),
        )
        try:
            dialling.start()
        except OutOfDescriptors:
            self._metrics.dials[DialResult.ABANDONED].inc()
            del self.lease_requests[command.id]
            self.tell(ev.DialFailed(command.id, DialResult.ABANDONED))
            caller.refuse(Refusal.DESCRIPTORS, "the proxy has no descriptor left")
            return
        self.dialling[command.id] = dialling

    def _dialled(self, command: cmd.Dial, dialling: Dialling, outcome: Leased | Failed) -> None:
        del self.dialling[command.id]
        caller = self.lease_requests[command.id]
        if isinstance(outcome, Leased):
            try:
                taken = caller.take(dialling)
            except Exception as error:
                self._drop(caller, dialling, error)
                return
            if not taken:
                outcome = Failed(DialResult.BROKEN)
                self._desk.poller.close(dialling.sock)
        if isinstance(outcome, Failed):
            self._dial_failed(command, caller, outcome)
            return
        metrics, now = self._metrics, self._clock()
        metrics.dials[DialResult.LEASED].inc()
        metrics.leases_granted.inc()
        metrics.hold_seconds.observe(now - caller.lease.arrived_at)
        metrics.grant_seconds.observe(max(0.0, now - command.grantable_since))
        self._book.begin(caller.lease)
        self.tell(ev.DialSucceeded(command.id))
        if command.id in self.lease_requests:
            caller.begin()

    def _drop(self, caller: LeaseRequest, dialling: Dialling, error: Exception) -> None:
        """A fault of ours with this very caller: another pod would not mend it, and no pod is to blame."""
        self._log.error("bug", handler="take", exc_info=error)
        self._desk.poller.close(dialling.sock)
        del self.lease_requests[caller.lease.id]
        self.tell(ev.DialFailed(caller.lease.id, DialResult.ABANDONED))
        caller.refuse(Refusal.PROXY_FAULT, "a fault of the proxy's own; its log says more")

    def _dial_failed(self, command: cmd.Dial, caller: LeaseRequest, failed: Failed) -> None:
        self._metrics.dials[failed.result].inc()
        if failed.result is DialResult.CALLER:
            del self.lease_requests[command.id]
            self.tell(ev.DialFailed(command.id, failed.result))
            caller.pass_on(failed.status, failed.body)
            return
        if failed.result is DialResult.REJECTED:
            self._log.error("handshake-rejected", pod=command.pod_name, **told_by(failed))
            del self.lease_requests[command.id]
            self.tell(ev.DialFailed(command.id, failed.result))
            caller.refuse(Refusal.PROXY_FAULT, NOT_TAKEN)
            return
        self.tell(ev.DialFailed(command.id, failed.result, failed.busy))
        if failed.result in FAULTS:
            for_s = self.farm.set_aside_s(command.pool, command.pod, self._clock())
            self._log.warning("set-aside", pod=command.pod_name, result=failed.result, for_s=round(for_s, 3))

    def _abandon(self, command: cmd.AbandonDial) -> None:
        self._metrics.dials[DialResult.ABANDONED].inc()
        self.dialling.pop(command.id).abandon()

    def _refuse(self, command: cmd.Refuse) -> None:
        caller = self.lease_requests.pop(command.id, None)
        if caller is not None:
            caller.refuse(command.reason, command.detail)

    def _close_session(self, command: cmd.CloseSession) -> None:
        self.lease_requests[command.id].close(command.end)

    def _wake_at(self, command: cmd.WakeAt) -> None:
        if self._wakeup is not None:
            self._wakeup.set(command.at)
