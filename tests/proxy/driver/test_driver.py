"""The driver: every command, every outcome of a dial, and every way in which a caller's time with it ends."""

import asyncio

import pytest
from farmproxy import driver as driver_module
from farmproxy.core.commands import AskAgent, StopAsking
from farmproxy.core.events import CallerLeft, DialSucceeded, DoorClosed, PodsChanged
from farmproxy.core.limits import Limits
from farmproxy.driver import RENEWABLE_MAX_S, Failed
from farmproxy.registry.leases import Kind
from farmwire.reasons import FAULTS, Busy, DialResult, End

pytestmark = pytest.mark.looptime(start=1000)

TAKEN = ("take", "10.0.0.9", 9222)


class Join:
    def __init__(self, idle=False):
        self.idle = idle
        self.closed = []

    def close(self, end):
        self.closed.append(end)


# A lease, from arrival to its last line


async def test_a_lease_from_arrival_to_its_one_line_in_the_log(drive):
    farm = drive()
    caller = farm.arrive("c1")
    assert farm.driver.waiting == 1
    assert farm.core.snapshot(farm.clock())["p"].held[0].label == "label-c1"
    await asyncio.sleep(2.5)
    farm.seen("u1")
    dial = farm.dial("c1")
    assert dial.started
    assert (dial.desk, dial.address, dial.port) == (farm.desk, "10.0.0.9", 9222)
    assert farm.driver.waiting == 0
    await asyncio.sleep(0.5)
    dial.ends(driver_module.Leased())
    assert caller.told == [TAKEN, "begin"]
    assert farm.book.live == {"c1": caller.lease}
    assert farm.driver.dialling == {}
    assert farm.driver.waiting == 0
    assert farm.core.counts("p").leases == 1
    await asyncio.sleep(7)
    farm.driver.session_ended(caller, End.DONE)
    assert farm.driver.lease_requests == {}
    assert farm.book.live == {}
    assert farm.log.of("lease-ended") == []  # its agent is asked first
    assert "SessionEnded" in farm.core.story("c1")[-1]
    assert "'done'" in farm.core.story("c1")[-1]
    assert farm.readiness_polls.asked == [AskAgent("p", "u1", "10.0.0.9", 9222, 30.0, "c1")]
    farm.driver.lease_log.heard("c1", End.BROWSER_DIED, reached=True)
    (line,) = farm.log.of("lease-ended")
    assert (line["end"], line["pod"], line["dials"]) == (End.BROWSER_DIED, "pod-u1", 1)
    assert (line["held_s"], line["lease_s"]) == (3.0, 7.0)
    assert farm.metrics.leases_granted.value == farm.count(DialResult.LEASED) == 1


async def test_the_agent_is_told_all_that_it_needs(drive):
    farm = drive()
    caller = farm.arrive("c1", max_s=90.4)
    caller.lease.launch = "lang=de"
    caller.lease.allow_origin = "https://app.test"
    await asyncio.sleep(1.25)
    farm.seen("u1")
    fields = farm.dial("c1").fields
    assert fields["Host"] == "10.0.0.9:9222"
    assert fields["Farm-Lease"] == "c1"
    assert fields["Farm-Key"] == "agents-key"
    assert fields["Farm-Lease-Max-S"] == "90"
    assert fields["Farm-Waited-Ms"] == "1250"
    assert fields["Farm-Dials"] == "1"
    assert fields["Farm-Public-Base"] == "http://farm.test"
    assert fields["Farm-Launch"] == "lang=de"
    assert fields["Farm-Allow-Origin"] == "https://app.test"
    lease = caller.lease
    told = (lease.pod, lease.pod_key, lease.address, lease.port, lease.dials)
    assert told == ("pod-u1", "u1", "10.0.0.9", 9222, 1)


async def test_a_lease_of_less_than_half_a_second_is_one_second_for_its_agent(drive):
    farm = drive()
    farm.seen("u1")
    farm.arrive("c1", max_s=0.2)
    assert farm.dial("c1").fields["Farm-Lease-Max-S"] == "1"


async def test_the_agent_of_a_lease_that_may_be_renewed_is_not_told_its_first_limit(drive):
    # The agent would end it there, however often it was renewed.
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1", kind=Kind.NAMED, max_s=60.0)
    assert RENEWABLE_MAX_S == 7 * 24 * 3600
    farm.arrive("c2", kind=Kind.NAMED, max_s=60.0)
    farm.seen("u2")
    assert farm.dial("c2").fields["Farm-Lease-Max-S"] == str(RENEWABLE_MAX_S)
    assert caller.lease.expires_at == farm.clock() + 60.0


async def test_an_answer_of_another_pod_or_lease_is_not_this_dial_s(drive):
    farm = drive()
    farm.seen("u1")
    farm.arrive("c1")
    answer = b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\nFarm-Lease: %s\r\nFarm-Pod: f/p/%s\r\n\r\n"
    reader = farm.dial("c1").reader
    assert reader.feed(answer % (b"c1", b"u2")) == Failed(DialResult.WRONG_POD)
    farm.arrive("c2")
    farm.seen("u3")
    assert farm.dial("c2").reader.feed(answer % (b"c2", b"u3")) == driver_module.Leased()


async def test_the_time_to_grant_is_counted_from_when_both_were_there(drive):
    farm = drive()
    farm.seen("u1")
    await asyncio.sleep(100)  # a pod that waits for callers is no delay
    farm.arrive("c1")
    await asyncio.sleep(4)
    farm.dial("c1").ends(driver_module.Leased())
    assert farm.metrics.grant_seconds._sum == pytest.approx(4)
    farm.arrive("c2")
    await asyncio.sleep(50)  # a caller that waits for pods is a hold
    farm.seen("u2")
    await asyncio.sleep(1)
    farm.dial("c2").ends(driver_module.Leased())
    assert farm.metrics.grant_seconds._sum == pytest.approx(5)
    assert farm.metrics.hold_seconds._sum == pytest.approx(4 + 51)


# How a dial ends


@pytest.mark.parametrize("result", sorted(FAULTS))
async def test_a_fault_is_invisible_to_the_caller_and_sets_the_pod_aside(drive, result):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1")
    farm.dial("c1").ends(Failed(result))
    assert caller.told == []
    assert farm.driver.lease_requests == {"c1": caller}
    assert (farm.driver.waiting, farm.count(result)) == (1, 1)
    (line,) = farm.log.of("set-aside")
    assert {key: line[key] for key in ("level", "pod", "result", "for_s")} == {
        "level": "warning",
        "pod": "pod-u1",
        "result": result,
        "for_s": 2.0,
    }
    await asyncio.sleep(2.1)  # nobody moves but the wakeup
    assert farm.dial("c1").fields["Farm-Dials"] == "2"
    farm.dial("c1").ends(driver_module.Leased())
    assert caller.told == [TAKEN, "begin"]


async def test_a_busy_pod_is_no_fault(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1")
    farm.dial("c1").ends(Failed(DialResult.BUSY, Busy.DRAINING))
    assert (caller.told, farm.count(DialResult.BUSY)) == ([], 1)
    assert farm.log.of("set-aside") == []
    assert farm.readiness_polls.asked == []  # the agent's own word: it drains, and is not asked again


async def test_a_connection_that_broke_before_the_first_byte_is_closed_and_another_pod_dialled(drive):
    farm = drive()
    farm.seen("u1", "u2")
    caller = farm.arrive("c1", takes=False)
    first = farm.dial("c1")
    first.ends(driver_module.Leased())
    assert farm.closed == [first.sock]
    assert (farm.count(DialResult.BROKEN), farm.count(DialResult.LEASED)) == (1, 0)
    assert farm.book.live == {}
    caller.takes = True
    farm.dial("c1").ends(driver_module.Leased())
    assert caller.lease.pod_key == "u2"
    assert caller.told == [TAKEN, TAKEN, "begin"]


async def test_the_agent_s_word_on_the_caller_s_own_fault_is_passed_on(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1")
    farm.dial("c1").ends(Failed(DialResult.CALLER, status=422, body=b"{}"))
    assert caller.told == [("pass on", 422, b"{}")]
    assert (farm.driver.lease_requests, farm.count(DialResult.CALLER)) == ({}, 1)
    assert farm.core.counts("p").pods["free"] == 1


async def test_an_agent_that_does_not_take_our_request_is_an_error_of_the_proxy(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1")
    farm.dial("c1").ends(Failed(DialResult.REJECTED, status=431, body=b'{"reason": "too large"}'))
    assert caller.told == [("refuse", "proxy-fault", driver_module.NOT_TAKEN)]
    assert (farm.driver.lease_requests, farm.count(DialResult.REJECTED)) == ({}, 1)
    (line,) = farm.log.of("handshake-rejected")
    assert (line["level"], line["pod"], line["status"]) == ("error", "pod-u1", 431)
    assert line["answer"] == '{"reason": "too large"}'
    assert farm.core.counts("p").pods["free"] == 1


async def test_a_caller_that_our_own_bug_meets_is_told_so_and_no_pod_is_blamed(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1", takes=ValueError("bug"))
    dial = farm.dial("c1")
    dial.ends(driver_module.Leased())
    assert caller.told[1] == ("refuse", "proxy-fault", "a fault of the proxy's own; its log says more")
    assert farm.closed == [dial.sock]
    assert (farm.driver.lease_requests, farm.driver.dialling, farm.book.live) == ({}, {}, {})
    assert farm.core.counts("p").pods["free"] == 1
    (line,) = farm.log.of("bug")
    assert (line["level"], line["handler"]) == ("error", "take")
    assert line["exc_info"] is caller.takes


async def test_without_a_descriptor_the_caller_is_refused_and_no_pod_blamed(drive, no_descriptors):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1")
    assert caller.told == [("refuse", "descriptors", "the proxy has no descriptor left")]
    assert (farm.driver.lease_requests, farm.driver.dialling) == ({}, {})
    assert farm.count(DialResult.ABANDONED) == 1
    assert farm.core.counts("p").pods["free"] == 1


# Callers that go, wait too long or grow


async def test_who_leaves_while_held_is_forgotten(drive):
    farm = drive()
    caller = farm.arrive("c1")
    farm.driver.leave(caller)
    farm.driver.leave(caller)  # twice is harmless
    assert (caller.told, farm.driver.lease_requests) == ([], {})
    assert farm.core.counts("p").held == 0
    assert farm.log.of("illegal-event") == []


async def test_who_leaves_during_its_dial_has_it_abandoned_and_the_pod_given_back(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1")
    dial = farm.dial("c1")
    farm.driver.leave(caller)
    assert dial.abandoned
    assert (farm.driver.dialling, farm.count(DialResult.ABANDONED)) == ({}, 1)
    assert farm.core.counts("p").pods["free"] == 1


async def test_a_hold_ends_at_its_deadline_by_the_wakeup_alone(drive):
    farm = drive()
    caller = farm.arrive("c1", hold_s=3600.0)
    await asyncio.sleep(3599)
    assert caller.told == []
    await asyncio.sleep(1.5)
    assert [told[:2] for told in caller.told] == [("refuse", "hold-timeout")]
    assert caller.told[0][2]
    assert farm.driver.lease_requests == {}


async def test_a_caller_that_grows_beyond_the_memory_is_refused(drive):
    farm = drive(Limits(hold_bytes=100))
    caller = farm.arrive("c1", cost=60)
    farm.driver.grow(caller, 90)
    assert caller.told == []
    farm.driver.grow(caller, 101)
    assert [told[:2] for told in caller.told] == [("refuse", "queue-full")]


async def test_the_bytes_that_a_caller_brings_are_counted(drive):
    farm = drive(Limits(hold_bytes=100))
    farm.arrive("c1", cost=60)
    assert farm.arrive("c2", cost=41).told[0][1] == "queue-full"


# How a lease ends


async def test_the_longest_time_ends_a_lease_by_the_wakeup_alone(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1", max_s=900.0)
    await asyncio.sleep(899)
    assert caller.told[-1] == "begin"
    await asyncio.sleep(1.5)
    assert caller.told[-1] == ("close", "max")
    assert farm.driver.lease_requests == {}


async def test_a_renewed_lease_lasts_from_its_renewal(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1", kind=Kind.NAMED, max_s=60.0)
    await asyncio.sleep(50)
    farm.driver.renew(caller.lease, 100.0)
    assert caller.lease.expires_at == farm.clock() + 100.0
    await asyncio.sleep(99)
    assert caller.told[-1] == "begin"
    await asyncio.sleep(1.5)
    assert caller.told[-1] == ("close", "max")


async def test_an_ended_lease_ends_its_joins_in_the_same_way_and_counts_once(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1", kind=Kind.NAMED)
    joins = [Join(), Join()]
    caller.lease.joins = set(joins)
    farm.driver.session_ended(caller, End.DELETED)
    farm.driver.session_ended(caller, End.DONE)
    assert [join.closed for join in joins] == [[End.DELETED], [End.DELETED]]
    assert farm.log.of("illegal-event") == []
    assert caller.lease.end is End.DELETED


async def test_a_lease_whose_agent_gives_no_word_ended_as_the_proxy_saw(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1")
    farm.driver.session_ended(caller, End.STALL)
    farm.driver.tell(PodsChanged("p", gone=("u1",)))  # the question how it ended goes on
    assert farm.log.of("lease-ended") == []
    farm.driver.lease_log.heard("c1", None, reached=False)
    assert farm.end_of(caller) is End.STALL


async def test_a_lease_whose_agent_is_not_asked_is_settled_at_once(drive, monkeypatch):
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1")
    monkeypatch.setattr(farm.core, "handle", lambda event, now: [])
    farm.driver.session_ended(caller, End.DONE)
    assert farm.end_of(caller) is End.DONE


async def test_a_question_of_no_more_use_is_stopped(drive):
    farm = drive()
    farm.seen("u1", "u2")
    farm.leased("c1")
    farm.driver.session_ended(farm.driver.lease_requests["c1"], End.DONE)
    farm.said("u1", free=True)
    farm.seen("u1", ready=False)  # a doubt: its agent is asked, and it is granted meanwhile
    farm.arrive("c2")
    farm.arrive("c3")
    assert farm.readiness_polls.stopped == [StopAsking("p", "u1")]


# The idle limit is the lease's, over all its connections


@pytest.mark.parametrize(
    ("own", "joined", "ends"),
    [
        (True, [], True),
        (True, [True, True], True),
        (True, [True, False], False),
        (False, [True, True], False),
        (False, [], False),
    ],
)
async def test_a_lease_is_idle_when_all_its_connections_are(drive, own, joined, ends):
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1", kind=Kind.NAMED)
    caller.idle = own
    caller.lease.joins = {Join(idle) for idle in joined} or None
    farm.driver.idle(caller.lease)
    assert (caller.told[-1] == ("close", "idle")) is ends
    assert ("c1" in farm.book.live) is not ends


# The process ends


async def test_the_end_of_the_process_closes_sessions_and_refuses_the_others(drive):
    farm = drive()
    farm.seen("u1", "u2")
    leased = farm.leased("c1")
    dialling, held = farm.arrive("c2"), farm.arrive("c3")
    dial = farm.dial("c2")
    farm.driver.end_all(End.DRAINED)
    assert leased.told[-1] == ("close", "drained")
    assert dialling.told + held.told == [("refuse", "draining", "the proxy is shutting down")] * 2
    assert dial.abandoned
    assert (farm.driver.lease_requests, farm.driver.dialling, farm.book.live) == ({}, {}, {})
    assert farm.core.counts("p").demand == 0
    assert farm.log.of("illegal-event") == []


async def test_a_closed_door_refuses_who_comes_later_and_nobody_else(drive):
    farm = drive()
    held = farm.arrive("c1")
    farm.driver.tell(DoorClosed())
    late = farm.arrive("c2")
    assert [told[:2] for told in late.told] == [("refuse", "draining")]
    farm.seen("u1")
    farm.dial("c1").ends(driver_module.Leased())
    assert held.told[-1] == "begin"


# Order, and what may not happen


async def test_an_illegal_event_is_logged_and_harms_nobody(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.leased("c1")
    farm.driver.tell(CallerLeft("c1"))
    farm.driver.tell(DialSucceeded("nobody"))
    lines = farm.log.of("illegal-event")
    assert [line["level"] for line in lines] == ["error", "error"]
    assert "nobody" in lines[1]["detail"]
    farm.driver.session_ended(caller, End.DONE)
    assert farm.readiness_polls.asked[0].lease == "c1"


async def test_what_is_told_inside_a_command_is_handled_after_it_and_before_tell_returns(drive):
    farm = drive()
    first, second = farm.arrive("c1"), farm.arrive("c2")
    order = []

    def leave_both(reason, detail):
        order.append("refused")
        farm.driver.leave(second)
        order.append(farm.core.counts("p").held)  # not handled yet

    first.refuse = leave_both
    farm.core._pools["p"].limits = Limits(hold_bytes=0)
    farm.driver.grow(first, 10)
    assert order == ["refused", 1]
    assert farm.core.counts("p").held == 0
    assert farm.log.of("illegal-event") == []


async def test_a_command_that_raises_does_not_leave_the_driver_deaf(drive):
    farm = drive()
    caller = farm.arrive("c1", hold_s=300.0)

    def broken(reason, detail):
        raise ValueError(reason)

    caller.refuse = broken
    farm.core._pools["p"].limits = Limits(hold_bytes=0)
    with pytest.raises(ValueError, match="queue-full"):
        farm.driver.grow(caller, 10)
    farm.seen("u1")
    assert farm.leased("c2").told == [TAKEN, "begin"]


async def test_a_caller_closed_as_its_lease_began_does_not_begin(drive):
    farm = drive()
    farm.seen("u1")
    caller = farm.arrive("c1", max_s=0.0)  # its longest time is over at once

    dial = farm.dial("c1")
    handle = farm.core.handle

    def handle_and_wake(event, now):
        commands = handle(event, now)
        if isinstance(event, DialSucceeded):
            farm.driver.wake()
        return commands

    farm.core.handle = handle_and_wake
    dial.ends(driver_module.Leased())
    assert caller.told == [TAKEN, ("close", "max")]


async def test_before_its_wakeup_is_there_the_driver_takes_events(drive):
    farm = drive()
    farm.driver._wakeup = None
    assert farm.arrive("c1", hold_s=5).told == []
