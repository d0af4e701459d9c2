"""The core under every order of events that a driver can bring, against a model that keeps its own books.

The model answers dials and questions at random, moves time, lets slices say anything, and checks each command
against what it knows itself: nobody waits behind a later caller, no pod serves two, every caller ends once.
"""

from dataclasses import dataclass

import pytest
from farmproxy.core.commands import (
    AbandonDial,
    AskAgent,
    CloseSession,
    Command,
    Dial,
    Refuse,
    StopAsking,
    WakeAt,
)
from farmproxy.core.errors import IllegalEvent
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
from farmproxy.core.limits import Limits
from farmwire.reasons import FAULTS, Busy, DialResult, End, Refusal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

FOREVER = float("inf")
LIMITS = Limits(
    hold_limit=4, hold_bytes=50, set_aside_s=2, set_aside_max_s=8, recycle_s=5, ask_places=2, ask_sample=2
)
KEYS = [f"u{n}" for n in range(5)]
POOLS = ["a", "b"]
FAILURES = sorted(FAULTS | {DialResult.BUSY, DialResult.CALLER, DialResult.REJECTED, DialResult.ABANDONED})


@dataclass
class Someone:
    """A caller as the model sees it."""

    pool: str
    seq: int
    arrived_at: float
    hold_s: float
    max_s: float
    cost: int
    late: bool  # came after the door was closed
    where: str = "waiting"
    pod: str = ""
    failed_on: str = ""
    expires: float = 0.0

    @property
    def deadline(self) -> float:
        return self.arrived_at + self.hold_s


class FarmMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.farm = Farm(dict.fromkeys(POOLS, LIMITS))
        self.now = 0.0
        self.wake_at = FOREVER
        self.callers: dict[str, Someone] = {}
        self.ends: dict[str, str] = {}
        self.arrived = 0
        self.slices: dict[tuple[str, str], PodSeen] = {}
        self.asked: dict[tuple[str, str], AskAgent] = {}
        self.last_ask: dict[tuple[str, str, bool], float] = {}
        self.door_closed = False
        self.growing = ""
        self.broken = False

    # The model's books

    def tell(self, event: Event) -> None:
        self.broken = True  # until all is well
        commands = self.farm.handle(event, self.now)
        for command in commands:
            self.obey(command)
        self.broken = False
        assert not [c for c in self.callers.values() if c.where == "waiting" and c.hold_s == 0]

    def obey(self, command: Command) -> None:
        getattr(self, f"obey_{type(command).__name__}")(command)

    def obey_Dial(self, command: Dial) -> None:
        caller = self.callers[command.id]
        assert caller.where == "waiting"
        assert not caller.late
        ahead = [
            c
            for c in self.callers.values()
            if c.pool == caller.pool and c.where == "waiting" and c.seq < caller.seq
        ]
        assert not ahead, "served before an earlier caller"
        assert not self.users(command.pool, command.pod), "two callers on one pod"
        seen = self.slices[command.pool, command.pod]
        assert not seen.terminating
        assert command.waited_s == self.now - caller.arrived_at
        assert command.grantable_since <= self.now
        if caller.failed_on == command.pod:
            free = [p for p in self.farm.snapshot(self.now)[command.pool].pods if p.state == "free"]
            assert not free, "dialled the pod that just failed it while another was free"
        caller.where, caller.pod = "dialling", command.pod

    def obey_AbandonDial(self, command: AbandonDial) -> None:
        assert self.callers[command.id].where == "leaving"

    def obey_Refuse(self, command: Refuse) -> None:
        caller = self.callers[command.id]
        assert caller.where == "waiting"
        allowed = {
            Refusal.DRAINING: caller.late,
            Refusal.NO_FREE_POD: caller.hold_s == 0,
            Refusal.HOLD_TIMEOUT: self.now >= caller.deadline and caller.hold_s > 0,
            Refusal.QUEUE_FULL: not caller.failed_on or self.growing == command.id,
        }
        assert allowed[command.reason]
        self.finish(command.id, command.reason)

    def obey_CloseSession(self, command: CloseSession) -> None:
        caller = self.callers[command.id]
        assert caller.where == "leased"
        assert self.now >= caller.expires
        caller.where = "closing"

    def obey_AskAgent(self, command: AskAgent) -> None:
        key = (command.pool, command.pod)
        assert key not in self.asked, "two questions to one agent"
        assert not self.users(*key), "asked a pod that is in use"
        assert command.wait_s >= 0
        self.asked[key] = command
        if command.lease is None and command.wait_s > 0:
            long = [a for (p, _), a in self.asked.items() if p == key[0] and not a.lease and a.wait_s]
            assert len(long) <= LIMITS.ask_places

    def obey_StopAsking(self, command: StopAsking) -> None:
        del self.asked[command.pool, command.pod]

    def obey_WakeAt(self, command: WakeAt) -> None:
        self.wake_at = command.at

    def users(self, pool: str, pod: str) -> list[str]:
        busy = ("dialling", "leased", "closing")
        return [i for i, c in self.callers.items() if c.pool == pool and c.pod == pod and c.where in busy]

    def finish(self, id_: str, how: str) -> None:
        assert id_ not in self.ends, "ended twice"
        self.ends[id_] = how
        del self.callers[id_]

    def those(self, *where: str) -> list[str]:
        return sorted(i for i, c in self.callers.items() if c.where in where)

    # Callers

    @rule(
        pool=st.sampled_from(POOLS),
        hold_s=st.sampled_from([0, 0.5, 3, 20, FOREVER]),
        max_s=st.sampled_from([1, 10, FOREVER]),
        cost=st.sampled_from([0, 10, 30]),
    )
    def arrive(self, pool: str, hold_s: float, max_s: float, cost: int) -> None:
        self.arrived += 1
        id_ = f"c{self.arrived}"
        self.callers[id_] = Someone(pool, self.arrived, self.now, hold_s, max_s, cost, self.door_closed)
        self.tell(CallerArrived(id_, pool, hold_s, max_s, cost=cost))

    @precondition(lambda self: self.those("waiting", "dialling"))
    @rule(data=st.data(), by=st.sampled_from([1, 10, 60]))
    def grow(self, data: st.DataObject, by: int) -> None:
        id_ = data.draw(st.sampled_from(self.those("waiting", "dialling")))
        caller = self.callers[id_]
        caller.cost += by
        was, self.growing = caller.where, id_
        self.tell(CallerGrew(id_, caller.cost))
        self.growing = ""
        held = [c.cost for c in self.callers.values() if c.pool == caller.pool and c.where == "waiting"]
        assert id_ in self.callers or (was == "waiting" and sum(held) + caller.cost > LIMITS.hold_bytes)

    @precondition(lambda self: self.those("waiting", "dialling"))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.those("waiting", "dialling")))
        self.callers[id_].where = "leaving"
        self.tell(CallerLeft(id_))
        self.finish(id_, "left")

    @precondition(lambda self: self.those("dialling"))
    @rule(data=st.data())
    def dial_succeeds(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.those("dialling")))
        self.begin_session(id_)

    def begin_session(self, id_: str) -> None:
        caller = self.callers[id_]
        caller.where, caller.expires = "leased", self.now + caller.max_s
        self.tell(DialSucceeded(id_))

    @precondition(lambda self: self.those("dialling"))
    @rule(data=st.data(), result=st.sampled_from(FAILURES), busy=st.sampled_from(list(Busy)))
    def dial_fails(self, data: st.DataObject, result: DialResult, busy: Busy) -> None:
        id_ = data.draw(st.sampled_from(self.those("dialling")))
        caller = self.callers[id_]
        if result in (DialResult.CALLER, DialResult.REJECTED, DialResult.ABANDONED):
            self.finish(id_, result)
        else:
            caller.where, caller.failed_on = "waiting", caller.pod
        self.tell(DialFailed(id_, result, busy if result is DialResult.BUSY else None))

    @precondition(lambda self: self.those("leased", "closing"))
    @rule(data=st.data(), end=st.sampled_from(list(End)))
    def session_ends(self, data: st.DataObject, end: End) -> None:
        id_ = data.draw(st.sampled_from(self.those("leased", "closing")))
        self.finish(id_, end)
        self.tell(SessionEnded(id_, end))

    @precondition(lambda self: self.those("leased"))
    @rule(data=st.data(), max_s=st.sampled_from([0.5, 5]))
    def renew(self, data: st.DataObject, max_s: float) -> None:
        id_ = data.draw(st.sampled_from(self.those("leased")))
        self.callers[id_].expires = self.now + max_s
        self.tell(LeaseRenewed(id_, max_s))

    @rule()
    def close_door(self) -> None:
        if self.arrived > 8:  # late enough that most runs see a queue first
            self.door_closed = True
            self.tell(DoorClosed())

    # Pods

    @initialize(count=st.integers(0, 5))
    def first_list(self, count: int) -> None:
        for pool in POOLS:
            self.say(pool, [PodSeen(key, key, "10.0.0.1", 9222, True, False) for key in KEYS[:count]])

    def say(self, pool: str, seen: list[PodSeen]) -> None:
        for one in seen:
            before = self.slices.get((pool, one.key))
            if before is not None and before.terminating and one.terminating is False:
                # A deletion is never taken back: the model remembers it as the core must.
                self.slices[pool, one.key] = before
            else:
                self.slices[pool, one.key] = one
        self.tell(PodsChanged(pool, seen=tuple(seen)))

    @rule(
        pool=st.sampled_from(POOLS),
        key=st.sampled_from(KEYS),
        ready=st.booleans(),
        terminating=st.sampled_from([False, False, False, True]),
        fresh=st.booleans(),
    )
    def slice_changes(self, pool: str, key: str, ready: bool, terminating: bool, fresh: bool) -> None:
        self.say(pool, [PodSeen(key, key, "10.0.0.1", 9222, ready, terminating, fresh and ready)])

    @rule(pool=st.sampled_from(POOLS), keys=st.sets(st.sampled_from(KEYS), min_size=1, max_size=3))
    def pods_go(self, pool: str, keys: set[str]) -> None:
        for key in keys:
            self.slices.pop((pool, key), None)
        self.tell(PodsChanged(pool, gone=tuple(sorted(keys))))

    @precondition(lambda self: self.asked)
    @rule(
        data=st.data(),
        free=st.sampled_from([True, False, None]),
        busy=st.sampled_from([None, *Busy]),
    )
    def agent_says(self, data: st.DataObject, free: bool | None, busy: Busy | None) -> None:
        pool, pod = data.draw(st.sampled_from(sorted(self.asked)))
        self.answer(pool, pod, free, busy if free is False else None)

    def answer(self, pool: str, pod: str, free: bool | None, busy: Busy | None = None) -> None:
        del self.asked[pool, pod]
        self.tell(AgentSaid(pool, pod, free, busy))

    # Time

    @rule(seconds=st.sampled_from([0.1, 0.7, 2.5, 30.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self.wake_at <= end:
            self.wake()
        self.now = end

    def wake(self) -> None:
        self.now = max(self.now, self.wake_at)
        self.wake_at = FOREVER
        self.tell(TimePassed())

    @rule(late=st.floats(0, 5))
    def early_or_late_wake(self, late: float) -> None:
        self.now += late
        self.wake_at = FOREVER
        self.tell(TimePassed())

    # What cannot happen

    @rule(data=st.data())
    def illegal_event(self, data: st.DataObject) -> None:
        not_dialling = self.those("waiting", "leased", "closing")
        in_use = self.those("leased", "closing")
        impossible: list[Event] = [
            *(each("nobody") for each in (CallerLeft, DialSucceeded)),
            SessionEnded("nobody", End.DONE),
            LeaseRenewed("nobody", 5),
            CallerArrived("new", "no-pool", 1, 1),
            PodsChanged("no-pool"),
            AgentSaid("a", "never-seen", True),
            *(DialSucceeded(id_) for id_ in not_dialling),
            *(DialFailed(id_, DialResult.REFUSED) for id_ in not_dialling),
            *(CallerLeft(id_) for id_ in in_use),
            *(CallerGrew(id_, 5) for id_ in in_use),
            *(SessionEnded(id_, End.DONE) for id_ in self.those("waiting", "dialling")),
            *(LeaseRenewed(id_, 5) for id_ in self.those("waiting", "dialling", "closing")),
            *(DialFailed(id_, DialResult.LEASED) for id_ in self.those("dialling")),
            *(CallerArrived(id_, "a", 1, 1) for id_ in self.callers),
            *(CallerLeft(id_) for id_ in sorted(self.ends)),
            *(AgentSaid(*key, True) for key in self.slices if key not in self.asked),
        ]
        event = data.draw(st.sampled_from(impossible))
        before = self.picture()
        with pytest.raises(IllegalEvent):
            self.farm.handle(event, self.now)
        assert self.picture() == before

    def picture(self) -> object:
        ids = [*self.callers, *KEYS, *self.ends]
        counts = [self.farm.counts(pool) for pool in POOLS]
        stories = [self.farm.story(id_) for id_ in ids]
        return self.farm.snapshot(self.now), counts, stories, len(self.farm._context.timers)

    # What must always hold

    @invariant()
    def books_agree(self) -> None:
        self.farm.check_invariants()
        picture = self.farm.snapshot(self.now)
        for pool in POOLS:
            mine = {i: c for i, c in self.callers.items() if c.pool == pool}
            waiting = sorted((c.seq, i) for i, c in mine.items() if c.where == "waiting")
            leased = {i for i, c in mine.items() if c.where in ("leased", "closing")}
            view, counts = picture[pool], self.farm.counts(pool)
            assert [held.id for held in view.held] == [i for _, i in waiting]
            assert {lease.id for lease in view.leases} == leased
            assert {pod.uid for pod in view.pods} == {key for p, key in self.slices if p == pool}
            in_use = [c.pod for c in mine.values() if c.where not in ("waiting", "leaving")]
            known = [k for k in in_use if (pool, k) in self.slices and not self.slices[pool, k].terminating]
            assert counts.demand == view.demand == len(waiting) + len(known)
            assert (counts.held, counts.leases) == (len(waiting), len(leased))
            assert sum(counts.pods.values()) == len(view.pods)

    @invariant()
    def deadlines_have_a_wake(self) -> None:
        ends = [c.deadline for c in self.callers.values() if c.where == "waiting"]
        ends += [c.expires for c in self.callers.values() if c.where == "leased"]
        assert self.wake_at <= min(ends, default=FOREVER)

    def teardown(self) -> None:
        """When faults stop and time passes, everyone is served or refused, and everything is free again."""
        if self.broken:
            return
        for pool in POOLS:
            self.say(pool, [PodSeen(f"{pool}-last", "last", "10.0.0.1", 9222, True, False, True)])
        for _ in range(60 + 20 * len(self.callers)):
            if not (self.callers or self.asked):
                break
            for id_ in self.those("dialling"):
                self.begin_session(id_)
            for id_ in self.those("leased", "closing"):
                self.finish(id_, "done")
                self.tell(SessionEnded(id_, End.DONE))
            for key in sorted(self.asked):
                if key in self.asked:
                    self.answer(*key, free=True)
            if self.wake_at < FOREVER:
                self.wake()
        assert not self.callers, "a caller was lost"
        assert len(self.ends) == self.arrived
        self.books_agree()
        for pool in POOLS:
            assert self.farm.counts(pool).demand == 0


FarmMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestFarmMachine = FarmMachine.TestCase
