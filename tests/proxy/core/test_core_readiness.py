"""What counts as free, strongest first: our own leases; removed or terminating; the agent's word; the slice."""

import heapq

import pytest
from farmproxy.core.commands import AskAgent, StopAsking
from farmproxy.core.events import AgentSaid, CallerArrived, DialFailed, TimePassed
from farmproxy.core.limits import Limits
from farmwire.reasons import Busy, DialResult

# Slices


@pytest.mark.parametrize(
    ("ready", "terminating", "state"),
    [(True, False, "free"), (False, False, "unready"), (True, True, "unready"), (False, True, "unready")],
)
def test_slices_admit_pods(talk, ready: bool, terminating: bool, state: str) -> None:
    # ready and terminating at once is what publishNotReadyAddresses makes of a deleted pod; the flags come with their defaults filled in
    talk.seen("u1", ready=ready, terminating=terminating)
    assert talk.state("u1") == state
    assert talk.pod("u1").terminating is terminating


def test_only_the_ready_flag_changes(talk) -> None:
    talk.seen("u1")
    assert talk.farm.counts("d").pods["free"] == 1
    talk.seen("u1", ready=False)
    assert talk.farm.counts("d").pods["free"] == 0
    talk.arrive("c1")
    assert talk.dials(talk.seen("u1", fresh=True)) == [("c1", "u1")]


def test_a_free_pod_that_terminates_is_not_leased_and_the_caller_keeps_its_place(talk) -> None:
    talk.seen("u1")
    talk.seen("u1", terminating=True)
    talk.arrive("c1", "c2")
    assert talk.dials(talk.until(10)) == []
    assert talk.held == ["c1", "c2"]
    assert talk.dials(talk.seen("u2")) == [("c1", "u2")]


def test_a_deletion_is_never_taken_back(talk) -> None:
    talk.seen("u1", terminating=True)
    talk.seen("u1", ready=True, fresh=True)  # a stale twin slice
    assert talk.state("u1") == "unready"


def test_an_address_without_uid_may_come_back_from_termination(talk) -> None:
    talk.seen("10.0.0.9:9222", terminating=True)
    talk.seen("10.0.0.9:9222")
    assert talk.state("10.0.0.9:9222") == "free"


@pytest.mark.parametrize("fresh", [True, False])
def test_slices_never_change_a_pod_in_use(talk, fresh: bool) -> None:
    talk.seen("u1")
    talk.arrive("c1", "c2")
    for step, state in ((talk.succeed, "dialling"), (talk.end, "leased"), (None, "recycling")):
        for ready in (False, True, False, True):
            assert talk.seen("u1", ready=ready, fresh=ready and fresh) == []
            assert talk.state("u1") == state
        if step:
            step("c1")


def test_a_pod_that_left_and_came_back_is_a_new_record(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.fail("c1")
    talk.gone("u1")
    assert talk.dials(talk.seen("u1")) == [("c1", "u1")]
    assert talk.pod("u1").faults == 0


# The agent's word against the slice


def leased_and_free_again(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.said("u1", free=True)


def test_after_a_lease_the_agent_is_asked_and_its_word_makes_the_pod_free(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    assert talk.end("c1") == [AskAgent("d", "u1", "10.0.0.9", 9222, 30.0, lease="c1")]
    talk.arrive("c2")
    talk.at(1)
    assert talk.dials(talk.said("u1", free=True)) == [("c2", "u1")]


def test_a_late_not_ready_is_checked_with_the_agent_and_the_agent_is_believed(talk) -> None:
    leased_and_free_again(talk)
    assert talk.asks(talk.seen("u1", ready=False)) == [("u1", 0.0)]
    assert talk.state("u1") == "free"
    talk.said("u1", free=True)
    assert talk.state("u1") == "free"
    assert talk.dials(talk.arrive("c2")) == [("c2", "u1")]


@pytest.mark.parametrize("free", [False, None])
def test_a_not_ready_pod_whose_agent_does_not_say_free_is_unready(talk, free: bool | None) -> None:
    leased_and_free_again(talk)
    talk.seen("u1", ready=False)
    talk.said("u1", free=free, busy=Busy.BUSY if free is False else None)
    assert talk.state("u1") == "unready"


def test_not_ready_counts_at_once_when_a_slice_has_shown_ready_since_the_agent_s_word(talk) -> None:
    leased_and_free_again(talk)
    talk.seen("u1", ready=True)
    assert talk.asks(talk.seen("u1", ready=False)) == []
    assert talk.state("u1") == "unready"


def test_a_free_word_stands_while_the_slice_still_says_not_ready(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.seen("u1", ready=False)
    talk.end("c1")
    talk.said("u1", free=True)
    assert talk.state("u1") == "free"
    assert talk.seen("u1", ready=False) == []  # no change, so no doubt
    assert talk.state("u1") == "free"


def test_a_doubted_pod_can_be_granted_and_the_question_is_dropped(talk) -> None:
    leased_and_free_again(talk)
    talk.seen("u1", ready=False)
    commands = talk.arrive("c2")
    assert talk.dials(commands) == [("c2", "u1")]
    assert StopAsking("d", "u1") in commands


def test_a_pod_given_back_after_a_not_ready_that_counts_is_unready(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.seen("u1", ready=False)
    talk.leave("c1")
    assert talk.state("u1") == "unready"


def test_a_pod_given_back_after_a_doubtful_not_ready_is_free_and_asked(talk) -> None:
    leased_and_free_again(talk)
    talk.arrive("c2")
    talk.seen("u1", ready=False)
    assert talk.asks(talk.leave("c2")) == [("u1", 0.0)]
    assert talk.state("u1") == "free"


# Recycling


def test_an_agent_that_is_not_free_is_asked_again_until_the_recycle_limit(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.at(10)
    talk.said("u1", free=False, busy=Busy.RECYCLING)  # before its wait of 30 s is over
    assert talk.asks(talk.until(10.49)) == []
    assert talk.asks(talk.until(10.5)) == [("u1", 19.5)]
    talk.at(30)
    talk.said("u1", free=False, busy=Busy.RECYCLING)
    assert talk.state("u1") == "unready"


def test_after_the_limit_a_slice_brings_the_pod_back_by_a_change_only(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.at(30)
    talk.said("u1", free=False, busy=Busy.RECYCLING)
    talk.seen("u1")  # as before: nothing new
    assert talk.state("u1") == "unready"
    talk.seen("u1", ready=False)
    talk.seen("u1", ready=True)
    assert talk.state("u1") == "free"


def test_a_pod_that_is_not_clean_in_time_is_asked_when_callers_wait(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.at(30)
    assert talk.asks(talk.said("u1", free=False, busy=Busy.RECYCLING)) == []
    assert talk.asks(talk.arrive("c2")) == [("u1", 30.0)]
    assert talk.dials(talk.said("u1", free=True)) == [("c2", "u1")]


def test_an_unreachable_agent_is_asked_again_because_its_container_may_restart(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    talk.arrive("c2")
    talk.said("u1", free=None)
    assert talk.state("u1") == "recycling"
    assert talk.pod("u1").faults == 0
    assert talk.asks(talk.until(0.5)) == [("u1", 29.5)]
    assert talk.dials(talk.said("u1", free=True)) == [("c2", "u1")]


def test_an_agent_that_stays_unreachable_is_given_up_at_the_limit(talk) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    commands = talk.end("c1")
    questions = 0
    while talk.state("u1") == "recycling":
        if talk.asks(commands):
            questions += 1
            commands = talk.said("u1", free=None)
        else:
            commands = talk.until(talk.wake_at)
    assert 5 <= questions <= 10  # pauses grow
    assert talk.now <= 30
    assert talk.state("u1") == "unready"


@pytest.mark.parametrize("leave_by", ["draining", "terminating", "gone"])
def test_a_pod_that_will_never_be_free_again_is_not_waited_for(talk, leave_by: str) -> None:
    talk.seen("u1")
    talk.lease("c1", "u1")
    talk.end("c1")
    if leave_by == "terminating":
        talk.seen("u1", terminating=True)
    elif leave_by == "gone":
        talk.gone("u1")
    talk.said("u1", free=False, busy=Busy.DRAINING if leave_by == "draining" else Busy.RECYCLING)
    assert [pod.state for pod in talk.view.pods] == ([] if leave_by == "gone" else ["unready"])
    talk.arrive("c2", hold_s=100)
    assert talk.asks(talk.until(99)) == []


# 409


def test_a_409_is_no_fault_and_is_followed_by_a_long_question(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    commands = talk.busy("c1")
    assert talk.state("u1") == "unready"
    assert talk.pod("u1").faults == 0
    assert talk.asks(commands) == [("u1", 30.0)]
    talk.at(12)
    assert talk.dials(talk.said("u1", free=True)) == [("c1", "u1")]


def test_a_409_d_pod_is_asked_although_nobody_waits(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.busy("c1")
    talk.leave("c1")
    talk.at(30)
    assert talk.asks(talk.said("u1", free=False, busy=Busy.BUSY)) == [("u1", 30.0)]
    talk.said("u1", free=True)
    assert talk.state("u1") == "free"


def test_a_slice_that_turns_to_ready_brings_a_409_d_pod_back(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.busy("c1")
    assert talk.dials(talk.seen("u1")) == []  # nothing new: the agent's word is stronger
    commands = talk.seen("u1", fresh=True)
    assert StopAsking("d", "u1") in commands
    assert talk.dials(commands) == [("c1", "u1")]


def test_long_questions_are_bounded_and_the_others_wait_their_turn(new_talk) -> None:
    talk = new_talk(Limits(ask_places=2))
    talk.seen("u1", "u2", "u3")
    talk.arrive("c1", "c2", "c3")
    assert talk.asks(talk.busy("c1")) == [("u1", 30.0)]
    assert talk.asks(talk.busy("c2")) == [("u2", 30.0)]
    assert talk.asks(talk.busy("c3")) == []
    talk.at(2)
    assert [pod for pod, _ in talk.asks(talk.said("u1", free=False, busy=Busy.BUSY))] == ["u3"]
    # u1 takes its turn again when u2's is over, although u2 was asked to wait much longer.
    commands = talk.until(5)
    assert StopAsking("d", "u2") in commands
    assert talk.asks(commands)[0][0] == "u1"


def test_with_nobody_held_long_questions_are_not_hurried(new_talk) -> None:
    talk = new_talk(Limits(ask_places=2))
    talk.seen("u1", "u2", "u3")
    talk.arrive("c1", "c2", "c3")
    for id_ in ("c1", "c2", "c3"):
        talk.busy(id_)
    for id_ in ("c1", "c2", "c3"):
        talk.leave(id_)
    assert talk.asks(talk.until(29)) == []
    commands = talk.said("u1", free=False, busy=Busy.BUSY)
    assert talk.asks(commands) == [("u3", 30.0)]


class Agents:
    """Agents that are busy for the whole time of their waits; ``unasked_since`` has the pods under no question."""

    def __init__(self, talk, keys) -> None:
        self.talk = talk
        self.answers: list[tuple[float, str]] = []  # a heap: when each question's wait is over
        self.asked = 0
        self.unasked_since = dict.fromkeys(keys, 0.0)
        self.longest_unasked_s = 0.0

    def hear(self, commands) -> None:
        for command in commands:
            if isinstance(command, AskAgent):
                self.asked += 1
                unasked_s = self.talk.now - self.unasked_since.pop(command.pod)
                self.longest_unasked_s = max(self.longest_unasked_s, unasked_s)
                heapq.heappush(self.answers, (self.talk.now + command.wait_s, command.pod))
            elif isinstance(command, StopAsking):
                self.unasked_since[command.pod] = self.talk.now
                self.answers = [entry for entry in self.answers if entry[1] != command.pod]
                heapq.heapify(self.answers)

    def tell(self, event) -> None:
        self.hear(self.talk.farm.handle(event, self.talk.now))
        self.talk.wake_at = self.talk.farm._context.timers.next_at()

    def run(self, until: float) -> None:
        while (at := min([*self.answers[:1], (self.talk.wake_at, "")])[0]) < until:
            self.talk.now = max(self.talk.now, at)
            if self.answers and self.answers[0][0] <= at:
                key = heapq.heappop(self.answers)[1]
                self.unasked_since[key] = at
                self.tell(AgentSaid("d", key, False, Busy.BUSY))
            else:
                self.tell(TimePassed())
        self.talk.farm.check_invariants()


@pytest.mark.parametrize("places", [64, 256, 2048])
@pytest.mark.parametrize("how", ["by a 409", "by a slice"])
def test_with_a_caller_held_none_of_a_thousand_busy_pods_is_unasked_for_five_seconds(
    new_talk, places, how
) -> None:
    # A pod under a question tells at once that it turned free.
    talk = new_talk(Limits(ask_places=places))
    keys = [f"u{n}" for n in range(1000)]
    agents = Agents(talk, keys)
    talk.seen(*keys)
    if how == "by a slice":
        talk.seen(*keys, ready=False)
    agents.tell(CallerArrived("held", "d", 1000.0, 900.0))
    while talk.farm.counts("d").pods["unready"] < len(keys):
        agents.tell(DialFailed("held", DialResult.BUSY, Busy.BUSY))
    agents.run(60)
    for since in agents.unasked_since.values():
        agents.longest_unasked_s = max(agents.longest_unasked_s, 60 - since)
    assert agents.longest_unasked_s < 5
    assert agents.asked <= (3100 if places > len(keys) else 60 * len(keys) / 3)  # the price


# Busy elsewhere


def test_with_callers_held_and_nothing_free_pods_busy_elsewhere_are_asked(new_talk) -> None:
    talk = new_talk(Limits(ask_places=2))
    talk.seen("u1", "u2", "u3")
    for key in ("u1", "u2", "u3"):
        assert talk.asks(talk.seen(key, ready=False)) == []
    assert [pod for pod, _ in talk.asks(talk.arrive("c1"))] == ["u1", "u2"]
    assert talk.dials(talk.said("u2", free=True)) == [("c1", "u2")]


def test_pods_busy_elsewhere_are_asked_no_more_when_nobody_waits(talk) -> None:
    talk.seen("u1")
    talk.seen("u1", ready=False)
    assert talk.asks(talk.arrive("c1")) == [("u1", 30.0)]
    talk.leave("c1")
    talk.until(30)
    assert talk.asks(talk.said("u1", free=False, busy=Busy.BUSY)) == []
    assert talk.asks(talk.arrive("c2")) == [("u1", 30.0)]


def test_a_pod_never_admitted_by_a_slice_is_never_asked(talk) -> None:
    talk.seen("u1", ready=False)
    assert talk.asks(talk.arrive("c1", hold_s=1000)) == []
    assert talk.asks(talk.until(500)) == []


def test_a_pod_that_terminates_while_it_is_asked_is_asked_no_more(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1", hold_s=1000)
    talk.busy("c1")
    assert talk.seen("u1", terminating=True) == [StopAsking("d", "u1")]
    assert talk.asks(talk.until(500)) == []


def test_a_pod_that_vanishes_while_it_is_asked_is_asked_no_more(talk) -> None:
    talk.seen("u1")
    talk.arrive("c1")
    talk.busy("c1")
    assert talk.gone("u1") == [StopAsking("d", "u1")]
