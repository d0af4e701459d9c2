"""The agent's state machine: a table of single moves, and Hypothesis over all orders of events."""

import pytest
from farmagent.lease.states import (
    ENDS_KEPT,
    MOVES,
    AgentBegan,
    ChromeAnswered,
    ChromeFailed,
    ChromeSilent,
    DrainAsked,
    DrainPassed,
    EndLease,
    Grant,
    KillChrome,
    LeaseAsked,
    LeaseClosed,
    LeaseUsed,
    Leave,
    PodStates,
    PromoteSpare,
    Refuse,
    StartChrome,
    State,
    Why,
)
from farmwire.launch_options import LaunchOptions
from farmwire.reasons import Busy, End
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule


def told(*events, spare_after_s=None, step_s=10.0):
    """The machine after these events, ``step_s`` apart, and the last one's commands."""
    states = PodStates(spare_after_s=spare_after_s)
    commands = []
    for number, event in enumerate(events):
        commands = states.handle(event, number * step_s)
    return states, commands


BEGAN = AgentBegan()
FREE = (BEGAN, ChromeAnswered(1))
LEASED = (*FREE, LeaseAsked("a"))
USED = (*LEASED, LeaseUsed("a"))
RECYCLING = (*USED, LeaseClosed("a", End.DONE))

GERMAN = LaunchOptions(lang="de")

TABLE = [
    ("begin", (BEGAN,), State.STARTING, [StartChrome(1, Why.START)]),
    ("started", FREE, State.FREE, []),
    ("another Chrome's answer is late news", (BEGAN, ChromeAnswered(7)), State.STARTING, []),
    ("lease", LEASED, State.LEASED, [Grant("a")]),
    ("second lease", (*LEASED, LeaseAsked("b")), State.LEASED, [Refuse("b", Busy.BUSY)]),
    ("same lease again", (*LEASED, LeaseAsked("a")), State.LEASED, [Refuse("a", Busy.BUSY)]),
    ("lease while starting", (BEGAN, LeaseAsked("a")), State.STARTING, [Refuse("a", Busy.STARTING)]),
    ("lease while recycling", (*RECYCLING, LeaseAsked("b")), State.RECYCLING, [Refuse("b", Busy.RECYCLING)]),
    (
        "unused lease needs no recycle",
        (*LEASED, LeaseClosed("a", End.DONE)),
        State.FREE,
        [EndLease("a", End.DONE)],
    ),
    (
        "used lease is followed by another Chrome",
        RECYCLING,
        State.RECYCLING,
        [EndLease("a", End.DONE), KillChrome(1), StartChrome(2, Why.RECYCLE)],
    ),
    (
        "a lease with options gets a Chrome of its own",
        (*FREE, LeaseAsked("a", GERMAN)),
        State.LEASED,
        [Grant("a"), KillChrome(1), StartChrome(2, Why.OPTIONS, options=GERMAN)],
    ),
    ("which answers", (*FREE, LeaseAsked("a", GERMAN), ChromeFailed(1), ChromeAnswered(2)), State.LEASED, []),
    (
        "which nobody else gets, used or not",
        (*FREE, LeaseAsked("a", GERMAN), ChromeAnswered(2), LeaseClosed("a", End.DONE)),
        State.RECYCLING,
        [EndLease("a", End.DONE), KillChrome(2), StartChrome(3, Why.RECYCLE)],
    ),
    (
        "which ends with its options",
        (*FREE, LeaseAsked("a", GERMAN), ChromeFailed(2)),
        State.RECYCLING,
        [EndLease("a", End.BROWSER_DIED), StartChrome(3, Why.DIED)],
    ),
    ("recycled", (*RECYCLING, ChromeFailed(1), ChromeAnswered(2)), State.FREE, []),
    ("a lease that is not the running one", (*LEASED, LeaseClosed("b", End.DONE)), State.LEASED, []),
    (
        "Chrome dies in a lease",
        (*USED, ChromeFailed(1)),
        State.RECYCLING,
        [EndLease("a", End.BROWSER_DIED), StartChrome(2, Why.DIED)],
    ),
    (
        "Chrome is silent at a handshake",
        (*LEASED, ChromeSilent(1)),
        State.STARTING,
        [EndLease("a", End.DONE)],
    ),
    ("and answers later", (*LEASED, ChromeSilent(1), ChromeAnswered(1)), State.FREE, []),
    (
        "or is frozen: another starts at once",
        (*LEASED, ChromeSilent(1), ChromeFailed(1)),
        State.STARTING,
        [StartChrome(2, Why.DIED)],
    ),
    ("silent in a session: the heartbeat has the word", (*USED, ChromeSilent(1)), State.LEASED, []),
    ("silence of a Chrome that is gone", (*RECYCLING, ChromeSilent(1)), State.RECYCLING, []),
    (
        "Chrome dies in a lease that no byte used",
        (*LEASED, ChromeFailed(1)),
        State.RECYCLING,
        [EndLease("a", End.BROWSER_DIED), StartChrome(2, Why.DIED)],
    ),
    (
        "the caller closes Chrome",
        (*USED, ChromeFailed(1, asked=True)),
        State.RECYCLING,
        [EndLease("a", End.DONE), StartChrome(2, Why.DIED)],
    ),
    ("Chrome dies while free", (*FREE, ChromeFailed(1)), State.STARTING, [StartChrome(2, Why.DIED)]),
    ("Chrome does not start", (BEGAN, ChromeFailed(1)), State.STARTING, [StartChrome(2, Why.RETRY, 0.5)]),
    (
        "Chrome does not start three times",
        (BEGAN, ChromeFailed(1), ChromeFailed(2), ChromeFailed(3)),
        State.BROKEN,
        [StartChrome(4, Why.RETRY, 2.0)],
    ),
    (
        "broken mends itself",
        (BEGAN, ChromeFailed(1), ChromeFailed(2), ChromeFailed(3), ChromeAnswered(4)),
        State.FREE,
        [],
    ),
    ("drain while free", (*FREE, DrainAsked()), State.DRAINING, [Leave(1)]),
    ("drain while starting", (BEGAN, DrainAsked()), State.DRAINING, [Leave(1)]),
    ("drain in a lease goes on", (*USED, DrainAsked()), State.DRAINING, []),
    (
        "no lease after drain",
        (*USED, DrainAsked(), LeaseAsked("b")),
        State.DRAINING,
        [Refuse("b", Busy.DRAINING)],
    ),
    (
        "no lease after leaving",
        (*FREE, DrainAsked(), LeaseAsked("b")),
        State.DRAINING,
        [Refuse("b", Busy.DRAINING)],
    ),
    (
        "drained by the session's own end",
        (*USED, DrainAsked(), LeaseClosed("a", End.DONE)),
        State.DRAINING,
        [EndLease("a", End.DONE), Leave(1)],
    ),
    (
        "drain limit",
        (*USED, DrainAsked(), DrainPassed()),
        State.DRAINING,
        [EndLease("a", End.DRAINED), Leave(1, at_once=True)],
    ),
    (
        "second SIGTERM",
        (*USED, DrainAsked(), DrainAsked()),
        State.DRAINING,
        [EndLease("a", End.DRAINED), Leave(1, at_once=True)],
    ),
    (
        "Chrome dies in a lease while draining",
        (*USED, DrainAsked(), ChromeFailed(1)),
        State.DRAINING,
        [EndLease("a", End.BROWSER_DIED), Leave(None)],
    ),
    ("left is left", (*FREE, DrainAsked(), ChromeFailed(1)), State.DRAINING, []),
]


@pytest.mark.parametrize(
    ("events", "state", "commands"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_move(events, state, commands):
    states, got = told(*events)
    assert (states.state, got) == (state, commands)


def test_a_start_that_hangs_is_broken_within_about_30_s():
    states, _ = told(BEGAN, ChromeFailed(1), ChromeFailed(2), step_s=20.0)
    assert states.state is State.BROKEN


def test_a_chrome_that_dies_right_after_each_answer_is_broken_too():
    events = [BEGAN, *(event for n in (1, 2, 3) for event in (ChromeAnswered(n), ChromeFailed(n)))]
    states, commands = told(*events, step_s=0.1)
    assert states.state is State.BROKEN
    assert commands == [StartChrome(4, Why.RETRY, 2.0)]


class TestSpare:
    def test_starts_some_seconds_after_the_lease_began(self):
        _, commands = told(*LEASED, spare_after_s=3.0)
        assert commands == [Grant("a"), StartChrome(2, Why.SPARE, 3.0)]

    def test_takes_over_and_is_asked_before_the_pod_is_free(self):
        states, commands = told(*RECYCLING, spare_after_s=3.0)
        assert commands == [EndLease("a", End.DONE), KillChrome(1), PromoteSpare(2)]
        assert states.state is State.RECYCLING
        states.handle(ChromeAnswered(2), 50.0)
        assert states.state is State.FREE

    def test_takes_over_when_chrome_dies_while_free(self):
        states, commands = told(*LEASED, LeaseClosed("a", End.DONE), ChromeFailed(1), spare_after_s=3.0)
        assert (states.state, commands) == (State.STARTING, [PromoteSpare(2)])

    def test_a_spare_that_fails_costs_nothing_until_the_next_lease(self):
        states, commands = told(*USED, ChromeFailed(2), spare_after_s=3.0)
        assert commands == []
        assert states.handle(LeaseClosed("a", End.DONE), 99.0)[-1] == StartChrome(3, Why.RECYCLE)

    def test_is_killed_by_a_drain(self):
        _, commands = told(*USED, DrainAsked(), spare_after_s=3.0)
        assert commands == [KillChrome(2)]


def test_the_last_ends_are_remembered():
    states, _ = told(*FREE)
    for number in range(ENDS_KEPT + 5):
        states.handle(LeaseAsked(str(number)), 0.0)
        states.handle(LeaseClosed(str(number), End.DONE), 0.0)
    assert len(states.ends) == ENDS_KEPT
    assert states.ends[str(ENDS_KEPT + 4)] is End.DONE
    assert "4" not in states.ends


def test_a_chrome_that_nobody_used_is_the_spare_of_a_lease_with_options():
    states, commands = told(*FREE, LeaseAsked("a", GERMAN), spare_after_s=3.0)
    assert commands == [Grant("a"), StartChrome(2, Why.OPTIONS, options=GERMAN)]
    commands = states.handle(LeaseClosed("a", End.DONE), 30.0)
    assert commands == [EndLease("a", End.DONE), KillChrome(2), PromoteSpare(1)]


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order, also late and repeated, the rules hold."""

    def __init__(self):
        super().__init__()
        self.states = PodStates(spare_after_s=3.0)
        self.now = 0.0
        self.alive = set()  # Chromes started and not killed
        self.used = set()  # Chromes that a caller's bytes reached, or its options
        self.granted, self.ended = [], []
        self.left = 0

    def tell(self, event):
        before = self.states.state
        for command in self.states.handle(event, self.now):
            self.obey(command)
        after = self.states.state
        assert after is before or after in MOVES[before]

    def obey(self, command):
        match command:
            case StartChrome(chrome):
                assert chrome not in self.alive
                self.alive.add(chrome)
                if command.options is not None:
                    self.used.add(chrome)
            case PromoteSpare(chrome):
                assert chrome in self.alive
            case KillChrome(chrome):
                self.alive.discard(chrome)
            case Grant(lease):
                assert self.states.main not in self.used, "a used Chrome was leased again"
                self.granted.append(lease)
            case EndLease(lease):
                self.ended.append(lease)
            case Leave():
                self.left += 1

    @rule(seconds=st.floats(0.0, 40.0))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def begins(self):
        self.tell(AgentBegan())

    @rule(chrome=st.integers(1, 12))
    def chrome_answers(self, chrome):
        if chrome in self.alive:
            self.tell(ChromeAnswered(chrome))

    @rule(chrome=st.integers(1, 12), asked=st.booleans())
    def chrome_fails(self, chrome, asked):
        self.alive.discard(chrome)
        self.tell(ChromeFailed(chrome, asked=asked))

    @rule(chrome=st.integers(1, 12))
    def chrome_is_silent(self, chrome):
        self.tell(ChromeSilent(chrome))

    @rule(lease=st.sampled_from("abcd"), options=st.sampled_from([None, GERMAN]))
    def lease_asked(self, lease, options):
        self.tell(LeaseAsked(lease, options))

    @rule(lease=st.sampled_from("abcd"))
    def lease_used(self, lease):
        if self.states.lease is not None and self.states.lease.id == lease:
            self.used.add(self.states.main)
        self.tell(LeaseUsed(lease))

    @rule(lease=st.sampled_from("abcd"), end=st.sampled_from(End))
    def lease_closed(self, lease, end):
        self.tell(LeaseClosed(lease, end))

    @rule(event=st.sampled_from([DrainAsked(), DrainPassed()]), really=st.integers(0, 5))
    def drain(self, event, really):
        if really == 0:
            self.tell(event)

    @invariant()
    def a_lease_stands_exactly_in_its_states(self):
        if self.states.state is State.LEASED:
            assert self.states.lease is not None
        elif self.states.state is not State.DRAINING:
            assert self.states.lease is None

    @invariant()
    def every_lease_ends_once(self):
        running = 1 if self.states.lease is not None else 0
        assert len(self.granted) == len(self.ended) + running

    @invariant()
    def never_more_than_main_and_spare(self):
        expected = {chrome for chrome in (self.states.main, self.states.spare) if chrome is not None}
        assert self.alive == expected or self.left

    @invariant()
    def leaves_at_most_once(self):
        assert self.left <= 1


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
