"""What the agent's one Chrome and one lease may do, as a plain object: events in, commands out, no clock, no I/O.

The rule: at most one lease, granted only while the main Chrome answers; a lease that carried a caller byte is
followed by another Chrome, never the same one. Events about a Chrome or a lease that is no longer the current
one are late news and change nothing.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum

from farmwire.launch_options import LaunchOptions
from farmwire.reasons import Busy, End

ENDS_KEPT = 100  # leases whose end can still be asked for
BROKEN_AFTER_FAILURES = 3
BROKEN_AFTER_S = 30.0  # the kubelet is told within about this time
SETTLED_S = 5.0  # a Chrome that dies sooner than this after its first answer counts as one that did not start
BACKOFF_S, BACKOFF_MAX_S = 0.5, 10.0


class State(StrEnum):
    STARTING = "starting"
    FREE = "free"
    LEASED = "leased"
    RECYCLING = "recycling"
    DRAINING = "draining"
    BROKEN = "broken"


MOVES: dict[State, frozenset[State]] = {
    State.STARTING: frozenset({State.FREE, State.BROKEN, State.DRAINING}),
    State.FREE: frozenset({State.LEASED, State.STARTING, State.BROKEN, State.DRAINING}),
    State.LEASED: frozenset({State.FREE, State.STARTING, State.RECYCLING, State.DRAINING}),
    State.RECYCLING: frozenset({State.FREE, State.BROKEN, State.DRAINING}),
    State.BROKEN: frozenset({State.FREE, State.DRAINING}),
    State.DRAINING: frozenset(),
}

BUSY: dict[State, Busy] = {
    State.STARTING: Busy.STARTING,
    State.LEASED: Busy.BUSY,
    State.RECYCLING: Busy.RECYCLING,
    State.DRAINING: Busy.DRAINING,
    State.BROKEN: Busy.STARTING,
}


class Why(StrEnum):
    """Why a Chrome is started (label of farmagent_chrome_starts_total)."""

    START = "start"
    RECYCLE = "recycle"
    SPARE = "spare"
    OPTIONS = "options"
    DIED = "died"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class AgentBegan:
    """The agent is up and has no Chrome yet."""


@dataclass(frozen=True, slots=True)
class ChromeAnswered:
    """A Chrome answered: for the first time, or again: a spare that was promoted, or one that had been silent."""

    chrome: int


@dataclass(frozen=True, slots=True)
class ChromeFailed:
    """A Chrome did not start, exited or froze. ``asked``: it left in order, as after Browser.close."""

    chrome: int
    asked: bool = False


@dataclass(frozen=True, slots=True)
class ChromeSilent:
    """A Chrome did not answer a handshake in time; ChromeAnswered or ChromeFailed will follow."""

    chrome: int


@dataclass(frozen=True, slots=True)
class LeaseAsked:
    """``options``: what a Chrome of the lease's own is to be started with."""

    lease: str
    options: LaunchOptions | None = None


@dataclass(frozen=True, slots=True)
class LeaseUsed:
    """The first caller byte came, on whichever connection of the lease."""

    lease: str


@dataclass(frozen=True, slots=True)
class LeaseClosed:
    """The lease's connection is closed, its answer complete, or its time over."""

    lease: str
    end: End


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """SIGTERM. A second one means at once."""


@dataclass(frozen=True, slots=True)
class DrainPassed:
    """The drain limit passed."""


Event = (
    AgentBegan
    | ChromeAnswered
    | ChromeFailed
    | ChromeSilent
    | LeaseAsked
    | LeaseUsed
    | LeaseClosed
    | DrainAsked
    | DrainPassed
)


@dataclass(frozen=True, slots=True)
class StartChrome:
    """Start a fresh process on fresh directories after ``after_s`` seconds."""

    chrome: int
    why: Why
    after_s: float = 0.0
    options: LaunchOptions | None = None


@dataclass(frozen=True, slots=True)
class PromoteSpare:
    """The spare becomes the main Chrome: start it at once if it waits, give it full priority, ask it again."""

    chrome: int


@dataclass(frozen=True, slots=True)
class KillChrome:
    chrome: int


@dataclass(frozen=True, slots=True)
class Grant:
    lease: str


@dataclass(frozen=True, slots=True)
class Refuse:
    lease: str
    busy: Busy


@dataclass(frozen=True, slots=True)
class EndLease:
    """Close every connection of the lease."""

    lease: str
    end: End


@dataclass(frozen=True, slots=True)
class Leave:
    """End this Chrome (in order unless ``at_once``), then the agent."""

    chrome: int | None
    at_once: bool = False


Command = StartChrome | PromoteSpare | KillChrome | Grant | Refuse | EndLease | Leave


class IllegalMoveError(AssertionError):
    """The machine was about to make a move that its table does not have: a defect of the machine."""


@dataclass(slots=True)
class Lease:
    """``used``: the Chrome that it has cannot be another's any more."""

    id: str
    used: bool = False


@dataclass(slots=True)
class PodStates:
    """``spare_after_s`` None: no hot spare. Times are seconds of one monotonic clock."""

    spare_after_s: float | None = None
    state: State = State.STARTING
    lease: Lease | None = None
    main: int | None = None
    spare: int | None = None
    failures: int = 0
    ends: OrderedDict[str, End] = field(default_factory=OrderedDict)
    _last_chrome: int = 0
    _down_since: float = 0.0
    _answered_at: float = 0.0
    _left: bool = False
    _silent: bool = False  # it ran well once, and is being asked again

    @property
    def busy(self) -> Busy | None:
        """Why no lease can be had; None means free."""
        return BUSY.get(self.state)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Raises IllegalMoveError for a move that MOVES does not have."""
        if self._left:
            return [Refuse(event.lease, Busy.DRAINING)] if isinstance(event, LeaseAsked) else []
        commands: list[Command] = []
        match event:
            case AgentBegan() if self.main is None:
                commands = self._start(Why.START, now)
            case ChromeAnswered(chrome):
                self._answered(chrome, now)
            case ChromeFailed(chrome, asked):
                commands = self._failed(chrome, now, asked=asked)
            case ChromeSilent(chrome):
                commands = self._silent_at_handshake(chrome)
            case LeaseAsked(lease, options):
                commands = self._lease_asked(lease, options)
            case LeaseUsed(lease) if self.lease is not None and self.lease.id == lease:
                self.lease.used = True
            case LeaseClosed(lease, end):
                commands = self._lease_closed(lease, end, now)
            case DrainAsked():
                commands = self._drain()
            case DrainPassed() if self.state is State.DRAINING:
                commands = self._leave(at_once=True)
        return commands

    def _move(self, state: State) -> None:
        if state is self.state:
            return
        if state not in MOVES[self.state]:
            raise IllegalMoveError(f"{self.state} -> {state}")
        self.state = state

    def _new_chrome(self) -> int:
        self._last_chrome += 1
        return self._last_chrome

    def _start(self, why: Why, now: float, after_s: float = 0.0) -> list[Command]:
        if why is not Why.RETRY:
            self._down_since = now
        if self.spare is not None:
            self.main, self.spare = self.spare, None
            return [PromoteSpare(self.main)]
        self.main = self._new_chrome()
        return [StartChrome(self.main, why, after_s)]

    def _answered(self, chrome: int, now: float) -> None:
        if chrome == self.main and self.state in (State.STARTING, State.RECYCLING, State.BROKEN):
            self._answered_at = now
            self._silent = False
            self._move(State.FREE)

    def _failed(self, chrome: int, now: float, *, asked: bool) -> list[Command]:
        if chrome == self.spare:
            self.spare = None
            return []
        if chrome != self.main:
            return []
        self.main = None
        if self.state is State.DRAINING:
            return self._leave(at_once=False, end=End.DONE if asked else End.BROWSER_DIED)
        if self.state is State.LEASED:
            ended = self._end_lease(End.DONE if asked else End.BROWSER_DIED)
            self._move(State.RECYCLING)
            return ended + self._start(Why.DIED, now)
        if self._silent or (self.state is State.FREE and now - self._answered_at >= SETTLED_S):
            self.failures = 0
            self._silent = False
            self._move(State.STARTING)
            return self._start(Why.DIED, now)
        return self._retry(now)

    def _retry(self, now: float) -> list[Command]:
        self.failures += 1
        if self.state is State.FREE:
            self._down_since = now
        if self.failures >= BROKEN_AFTER_FAILURES or now - self._down_since >= BROKEN_AFTER_S:
            self._move(State.BROKEN)
        elif self.state is State.FREE:
            self._move(State.STARTING)
        wait_s = min(BACKOFF_S * 2 ** min(self.failures - 1, 10), BACKOFF_MAX_S)
        return self._start(Why.RETRY, now, wait_s)

    def _silent_at_handshake(self, chrome: int) -> list[Command]:
        """The caller, who has sent nothing yet, gets another pod; this Chrome is not free before it answers."""
        if chrome != self.main or self.lease is None or self.lease.used:
            return []
        if self.state is State.DRAINING:
            return self._leave(at_once=False, end=End.DONE)
        commands = self._end_lease(End.DONE)
        self._silent = True
        self._move(State.STARTING)
        return commands

    def _lease_asked(self, lease: str, options: LaunchOptions | None) -> list[Command]:
        busy = self.busy
        if busy is not None:
            return [Refuse(lease, busy)]
        self.failures = 0
        self.lease = Lease(lease, used=options is not None)
        self._move(State.LEASED)
        commands: list[Command] = [Grant(lease)]
        if options is not None:
            commands += self._start_own(options)
        if self.spare_after_s is not None and self.spare is None:
            self.spare = self._new_chrome()
            commands.append(StartChrome(self.spare, Why.SPARE, self.spare_after_s))
        return commands

    def _start_own(self, options: LaunchOptions) -> list[Command]:
        """Another Chrome takes the main one's place; that one, which nobody has used, is kept where two may be."""
        usual, self.main = self.main, self._new_chrome()
        start = StartChrome(self.main, Why.OPTIONS, options=options)
        if usual is None:
            return [start]
        if self.spare_after_s is not None and self.spare is None:
            self.spare = usual
            return [start]
        return [KillChrome(usual), start]

    def _lease_closed(self, lease: str, end: End, now: float) -> list[Command]:
        if self.lease is None or self.lease.id != lease:
            return []
        if self.state is State.DRAINING:
            return self._leave(at_once=False, end=end)
        used = self.lease.used
        commands = self._end_lease(end)
        if not used:
            self._move(State.FREE)
            return commands
        if self.main is not None:
            commands.append(KillChrome(self.main))
        self._move(State.RECYCLING)
        return commands + self._start(Why.RECYCLE, now)

    def _end_lease(self, end: End) -> list[Command]:
        if self.lease is None:
            return []
        lease, self.lease = self.lease, None
        self.ends[lease.id] = end
        self.ends.move_to_end(lease.id)
        while len(self.ends) > ENDS_KEPT:
            self.ends.popitem(last=False)
        return [EndLease(lease.id, end)]

    def _drain(self) -> list[Command]:
        if self.state is State.DRAINING:
            return self._leave(at_once=True)
        self._move(State.DRAINING)
        if self.lease is None:
            return self._leave(at_once=False)
        spare, self.spare = self.spare, None
        return [KillChrome(spare)] if spare is not None else []

    def _leave(self, *, at_once: bool, end: End = End.DRAINED) -> list[Command]:
        self._left = True
        commands = self._end_lease(end)
        if self.spare is not None:
            commands.append(KillChrome(self.spare))
            self.spare = None
        return [*commands, Leave(self.main, at_once=at_once)]
