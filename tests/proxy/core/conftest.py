"""A conversation with the core: short words for events, invariants after each of them, commands recorded."""

from collections.abc import Callable

import pytest
from farmproxy.core.commands import AskAgent, Command, Dial, Refuse, WakeAt
from farmproxy.core.events import (
    AgentSaid,
    CallerArrived,
    CallerGrew,
    CallerLeft,
    DialFailed,
    DialSucceeded,
    DoorClosed,
    Event,
    LeaseRenewed,
    PodsChanged,
    PodSeen,
    SessionEnded,
    TimePassed,
)
from farmproxy.core.farm import Farm
from farmproxy.core.free_pods import Choice
from farmproxy.core.limits import Limits
from farmproxy.core.snapshots import PodView, PoolView
from farmwire.reasons import Busy, DialResult, End


class Talk:
    """Every method handles one event at ``now`` and returns its commands; ``at`` moves the clock first."""

    def __init__(self, limits: Limits | None = None, choice: Choice = Choice.LONGEST_FREE) -> None:
        self.farm = Farm({"d": limits or Limits(), "other": Limits()}, choice)
        self.now = 0.0
        self.wake_at = float("inf")

    def tell(self, event: Event) -> list[Command]:
        commands = self.farm.handle(event, self.now)
        self.farm.check_invariants()
        for command in commands:
            if isinstance(command, WakeAt):
                self.wake_at = command.at
        return commands

    def at(self, now: float) -> "Talk":
        assert now >= self.now
        self.now = now
        return self

    def until(self, now: float) -> list[Command]:
        """Let time pass as the driver does: TimePassed at each wake that was asked for."""
        commands: list[Command] = []
        while self.wake_at <= now:
            self.now = max(self.now, self.wake_at)
            self.wake_at = float("inf")
            commands += self.tell(TimePassed())
        self.now = now
        return commands

    def seen(
        self, *keys: str, ready: bool = True, terminating: bool = False, fresh: bool = False, pool: str = "d"
    ) -> list[Command]:
        pods = tuple(
            PodSeen(key, f"pod-{key}", "10.0.0.9", 9222, ready, terminating, fresh_ready=fresh)
            for key in keys
        )
        return self.tell(PodsChanged(pool, seen=pods))

    def gone(self, *keys: str) -> list[Command]:
        return self.tell(PodsChanged("d", gone=keys))

    def arrive(
        self, *ids: str, hold_s: float = 300.0, max_s: float = 900.0, cost: int = 0, pool: str = "d"
    ) -> list[Command]:
        commands: list[Command] = []
        for id_ in ids:
            commands += self.tell(CallerArrived(id_, pool, hold_s, max_s, f"label-{id_}", cost))
        return commands

    def leave(self, id_: str) -> list[Command]:
        return self.tell(CallerLeft(id_))

    def grow(self, id_: str, cost: int) -> list[Command]:
        return self.tell(CallerGrew(id_, cost))

    def succeed(self, id_: str) -> list[Command]:
        return self.tell(DialSucceeded(id_))

    def fail(
        self, id_: str, result: DialResult = DialResult.REFUSED, busy: Busy | None = None
    ) -> list[Command]:
        return self.tell(DialFailed(id_, result, busy))

    def busy(self, id_: str, why: Busy = Busy.BUSY) -> list[Command]:
        return self.fail(id_, DialResult.BUSY, why)

    def end(self, id_: str, end: End = End.DONE) -> list[Command]:
        return self.tell(SessionEnded(id_, end))

    def renew(self, id_: str, max_s: float) -> list[Command]:
        return self.tell(LeaseRenewed(id_, max_s))

    def said(self, key: str, free: bool | None, busy: Busy | None = None) -> list[Command]:
        return self.tell(AgentSaid("d", key, free, busy))

    def close_door(self) -> list[Command]:
        return self.tell(DoorClosed())

    def lease(self, id_: str, key: str) -> None:
        """Arrive, be granted this very pod and begin the session."""
        assert self.dials(self.arrive(id_)) == [(id_, key)]
        assert self.dials(self.succeed(id_)) == []

    @staticmethod
    def dials(commands: list[Command]) -> list[tuple[str, str]]:
        return [(command.id, command.pod) for command in commands if isinstance(command, Dial)]

    @staticmethod
    def refusals(commands: list[Command]) -> list[tuple[str, str]]:
        return [(command.id, str(command.reason)) for command in commands if isinstance(command, Refuse)]

    @staticmethod
    def asks(commands: list[Command]) -> list[tuple[str, float]]:
        return [(command.pod, command.wait_s) for command in commands if isinstance(command, AskAgent)]

    @property
    def view(self) -> PoolView:
        return self.farm.snapshot(self.now)["d"]

    def pod(self, key: str) -> PodView:
        return next(pod for pod in self.view.pods if pod.uid == key)

    def state(self, key: str) -> str:
        return self.pod(key).state

    @property
    def held(self) -> list[str]:
        return [held.id for held in self.view.held]


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def new_talk() -> Callable[..., Talk]:
    return Talk
