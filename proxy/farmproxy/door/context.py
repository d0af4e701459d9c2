"""What every caller's connection shares: the rules, who a caller is, and how it is refused."""

from collections.abc import Callable
from typing import Protocol

from farmwire.reasons import Refusal
from structlog.typing import FilteringBoundLogger

from farmproxy.config.settings import Settings
from farmproxy.config.tokens import Tokens
from farmproxy.door import origins, responses
from farmproxy.door.lease_options import Rules
from farmproxy.door.refusals import Refused
from farmproxy.door.request_heads import Head
from farmproxy.door.routes import Does, Intent, route
from farmproxy.driver import Driver
from farmproxy.net.poller import Poller
from farmproxy.net.sockets import Socket
from farmproxy.net.timeouts import Timeouts
from farmproxy.observe.metrics import Metrics
from farmproxy.registry.leases import Lease, LeaseBook
from farmproxy.tunnel.lingering_close import LingeringClose
from farmproxy.tunnel.tunnels import RelayDesk
from farmproxy.upstream.chrome_versions import Versions
from farmproxy.upstream.dials import DialDesk

EARLY_LIMIT = 64 * 1024  # bytes a caller may send ahead of its session, its body not counted
EARLY_BUDGET = (
    32 * 1024 * 1024
)  # of all connections that are not held: requests that are not whole, joins on their way
NO_MEMORY = "requests on their way take all the memory set for them"
# Bytes that a held caller costs beside what it sent: 2.8 to 4.8 KiB of RSS (scripts/measure_held.py).
CALLER_COST = 5 * 1024


class Waits(Protocol):
    """A connection whose next request is awaited."""

    def __hash__(self) -> int: ...
    def head_timed_out(self) -> None: ...


class Reserved(Protocol):
    """A lease of POST /leases, as its connections come and go."""

    def __hash__(self) -> int: ...
    def joined(self) -> None: ...
    def parted(self) -> None: ...
    def unused(self) -> None:
        """Nobody came within the first-use limit."""

    def left_alone(self) -> None:
        """Nobody came back within the rejoin limit."""


class Door:
    """One a process. ``local`` is the door's own address, for callers that name no host."""

    def __init__(
        self,
        settings: Settings,
        *,
        poller: Poller,
        driver: Driver,
        dials: DialDesk,
        relays: RelayDesk,
        lingering_close: LingeringClose,
        book: LeaseBook,
        tokens: Tokens,
        metrics: Metrics,
        versions: Versions,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
        room: Callable[[], int],
    ) -> None:
        """``room``: descriptors that may still be taken."""
        self.settings = settings
        self.poller = poller
        self.driver = driver
        self.dials = dials
        self.relays = relays
        self.lingering_close = lingering_close
        self.book = book
        self.tokens = tokens
        self.metrics = metrics
        self.versions = versions
        self.log = log
        self.clock = clock
        self.room = room
        self.early_bytes = 0
        self.local = str(settings.door)
        self.rules = Rules(
            tuple(settings.pools),
            settings.hold_default_s,
            settings.hold_ceiling_s,
            settings.lease_default_s,
            settings.lease_ceiling_s,
        )
        self.origin_rules = origins.OriginRules(
            settings.origins, settings.hosts, settings.trusted_proxies, settings.prefix
        )
        self.heads: Timeouts[Waits] = Timeouts(settings.head_timeout_s, clock)
        self.first_use: Timeouts[Reserved] = Timeouts(settings.first_use_s, clock)
        self.rejoin: Timeouts[Reserved] = Timeouts(settings.rejoin_s, clock)
        self.allowed: dict[int, bytes] = {}  # Origins of requests under way, by descriptor; most have none
        self.named: dict[str, Reserved] = {}  # running leases of POST /leases, by id

    def judge(self, head: Head, peer: str, sock: Socket) -> tuple[Intent, str, bool]:
        """What the head asks for, the host and prefix that URLs for this caller begin with, and whether over TLS; or Refused.

        Origin and Host come first: a foreign web page learns nothing, not even whether a token would do.
        """
        host, secure = origins.seen_as(head, peer, self.local, self.origin_rules)
        origins.check(head, host, self.origin_rules, token_required=self.tokens.required)
        origin = head.value(b"origin")
        if origin is not None:
            self.allowed[sock.fileno()] = origin
        prefix = origins.prefix_of(head, peer, self.origin_rules)
        if prefix:
            head.path = origins.strip(head.path, prefix)
        return route(head), host + prefix, secure

    def owner(self, intent: Intent) -> str:
        """The name that the token stands for, "" where none is asked; Refused (401) for any other."""
        if not self.tokens.required:
            return ""
        name = self.tokens.check(intent.token)
        if name is None:
            raise Refused(
                Refusal.UNAUTHORIZED, "a token is needed: token=... in the query or Authorization: Bearer"
            )
        return name

    def check_room(self, intent: Intent) -> None:
        if self.room() < (2 if intent.does is not Does.JOIN else 1):
            raise Refused(Refusal.DESCRIPTORS, "the proxy has no descriptor left for one more session")

    def reserve(self, more: int) -> bool:
        """Count bytes of a connection that is not held (negative: give them back); False where they do not fit."""
        if more > 0 and self.early_bytes + more > EARLY_BUDGET:
            return False
        self.early_bytes += more
        return True

    def refuse(self, sock: Socket, reason: Refusal, detail: str, *, bare: bool = False) -> None:
        """Answer and close; counted and logged, without anything that the caller sent."""
        self.metrics.refusals[reason].inc()
        self.log.info("caller-refused", reason=reason)
        self.say(sock, responses.refusal(reason, detail, bare=bare))

    def say(self, sock: Socket, answer: bytes) -> None:
        """Answer and close."""
        self.lingering_close.say(sock, self.readable(sock, answer))

    def readable(self, sock: Socket, answer: bytes) -> bytes:
        """The answer for whoever asked: a web page's browser wants to be told that the page may read it."""
        origin = self.allowed.get(sock.fileno())
        return answer if origin is None else responses.readable(answer, origin)

    def joined(self, lease: Lease) -> None:
        """A connection was added to the lease."""
        named = self.named.get(lease.id)
        if named is not None:
            named.joined()

    def parted(self, lease: Lease) -> None:
        """An added connection of the lease closed."""
        named = self.named.get(lease.id)
        if named is not None:
            named.parted()

    def public_base(self, lease: Lease, host: str, *, secure: bool) -> str:
        return f"{'wss' if secure else 'ws'}://{host}/leases/{lease.id}.{lease.key}"

    def sweep(self) -> None:
        for connection in self.heads.expired():
            connection.head_timed_out()
        for named in self.first_use.expired():
            named.unused()
        for named in self.rejoin.expired():
            named.left_alone()
