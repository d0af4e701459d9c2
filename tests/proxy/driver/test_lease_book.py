"""The lease book under a clock that the test moves: who finds which lease, how it looks, and when it is forgotten."""

import time

import pytest
from farmproxy.registry import history
from farmproxy.registry.history import REMEMBERED_S, Ended
from farmproxy.registry.ids import key_of
from farmproxy.registry.leases import Kind, Lease, LeaseBook, moment, shown
from farmwire.reasons import End

WALL = 1_800_000_000.0


@pytest.fixture
def wall(monkeypatch):
    """The clock that people read: it may be set while leases run."""
    wall = [WALL]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    return wall


@pytest.fixture
def book(clock, wall):
    return LeaseBook(clock)


def begin(book, clock, id_="L1", *, kind=Kind.NAMED, owner="me", label="job", max_s=60.0, waited_s=0.0):
    lease = Lease(id_, kind, owner=owner, pool="p", label=label, max_s=max_s, now=clock.now)
    clock.now += waited_s
    lease.pod = "pod-1"
    book.begin(lease)
    return lease


def test_a_lease_knows_how_long_it_waited_and_may_last(book, clock):
    lease = begin(book, clock, waited_s=1.5, max_s=60.0)
    assert lease.waited_ms == 1500
    assert lease.left_s(clock.now) == 60
    assert lease.left_s(clock.now + 0.1) == 60  # whole seconds, rounded up
    assert lease.left_s(clock.now + 59.5) == 1
    assert lease.left_s(clock.now + 61) == 1  # 0 would mean no limit, or a broken request
    assert (lease.bytes_up, lease.bytes_down, lease.dials, lease.port) == (0, 0, 0, 0)
    assert (lease.by_pod, lease.end, lease.joins, lease.launch) == (False, None, None, "")
    assert (lease.began_wall, lease.ended_at) == (WALL, 0.0)
    assert (lease.pod_key, lease.address, lease.public_base) == ("", "", "")


def test_who_finds_a_lease(book, clock):
    lease = begin(book, clock)
    for ended in (False, True):
        if ended:
            book.ended(lease, End.DONE)
        assert book.find("L1", "me", "") is not None
        assert book.find("L1", None, key_of("L1")) is not None  # the key stands for the owner's token
        assert book.find("L1", "other", "") is None
        assert book.find("L1", None, "") is None
        assert book.find("L1", "me", "f" * 32) is None  # a wrong key is wrong for its owner too
        assert book.find("L1", "me", "\u00e9") is None
        assert book.find("L2", "me", "") is None
    assert lease.key == key_of("L1")


def test_an_owner_lists_the_running_leases_of_its_own(book, clock):
    begin(book, clock, "L1", label="a")
    begin(book, clock, "L2", owner="other")
    begin(book, clock, "L3", label="b")
    gone = begin(book, clock, "L4", label="a")
    book.ended(gone, End.DONE)
    assert [lease.id for lease in book.of("me", None)] == ["L1", "L3"]
    assert [lease.id for lease in book.of("me", "b")] == ["L3"]
    assert list(book.of("nobody", None)) == []


def test_an_ended_lease_is_known_for_five_minutes_and_then_never_was(book, clock):
    book.ended(begin(book, clock), End.STALL)
    clock.now += REMEMBERED_S - 0.1
    book.sweep()
    found = book.find("L1", "me", "")
    assert isinstance(found, Ended)
    assert found.end is End.STALL
    clock.now += 0.1
    book.sweep()
    assert book.find("L1", "me", "") is None


def test_each_end_has_its_own_five_minutes(book, clock):
    for number in range(10):
        book.ended(begin(book, clock, f"L{number}"), End.DONE)
        clock.now += 20
    clock.now += REMEMBERED_S - 100
    book.sweep()
    assert [book.find(f"L{number}", "me", "") is not None for number in range(10)] == [False] * 6 + [True] * 4


def test_ends_a_moment_apart_share_a_page_that_is_kept_for_the_newest(book, clock):
    book.ended(begin(book, clock, "L1"), End.DONE)
    clock.now += 5.0
    book.ended(begin(book, clock, "L2"), End.DONE)
    clock.now += REMEMBERED_S - 1
    book.sweep()
    assert book.find("L1", "me", "") is not None
    assert len(book._history._pages) == 1
    clock.now += 1
    book.sweep()
    assert book.find("L2", "me", "") is None
    assert book._history._count == 0


def test_a_page_is_full_with_its_share(book, clock, monkeypatch):
    # So that the oldest can be forgotten a page at a time without losing half of all that is remembered.
    monkeypatch.setattr(history, "_REMEMBERED", 128 + 32)
    for number in range(200):
        book.ended(begin(book, clock, f"L{number}"), End.DONE)
    assert [len(page.leases) for page in book._history._pages] == [2] * 80
    assert book.find("L39", "me", "") is None
    assert book.find("L40", "me", "") is not None


def test_the_agent_s_word_corrects_how_a_lease_ended(book, clock):
    lease = begin(book, clock)
    book.ended(lease, End.DONE)
    book.correct(lease, End.BROWSER_DIED)
    assert lease.end is End.BROWSER_DIED
    assert book.find("L1", "me", "").end is End.BROWSER_DIED
    clock.now += REMEMBERED_S
    book.sweep()
    book.correct(lease, End.DRAINED)  # forgotten meanwhile: nobody is left to be told
    assert book.find("L1", "me", "") is None


def test_a_running_lease_as_its_owner_sees_it(book, clock, wall):
    lease = begin(book, clock, max_s=60.0)
    clock.now += 10
    wall[0] += 10
    lease.joins = {object(), object()}
    assert shown("L1", lease, clock.now) == {
        "id": "L1",
        "state": "leased",
        "kind": "named",
        "pool": "p",
        "pod": "pod-1",
        "label": "job",
        "began_at": moment(WALL),
        "expires_at": moment(WALL + 60),
        "connections": 2,
    }
    lease.joins = None
    assert shown("L1", lease, clock.now)["connections"] == 0
    assert shown("S1", begin(book, clock, "S1", kind=Kind.SOCKET), clock.now)["connections"] == 1


def test_an_ended_lease_as_its_owner_sees_it(book, clock, wall):
    lease = begin(book, clock)
    clock.now += 10
    wall[0] += 10
    book.ended(lease, End.MAX)
    assert lease.ended_at == clock.now
    assert shown("L1", book.find("L1", "me", ""), clock.now) == {
        "id": "L1",
        "state": "ended",
        "kind": "named",
        "pool": "p",
        "pod": "pod-1",
        "label": "job",
        "began_at": moment(WALL),
        "ended_at": moment(WALL + 10),
        "end": End.MAX,
    }


def test_a_clock_that_is_set_changes_no_limit(book, clock, wall):
    lease = begin(book, clock, max_s=60.0)
    wall[0] -= 86_400
    assert lease.left_s(clock.now) == 60
    book.ended(lease, End.DONE)
    wall[0] += 10 * 86_400
    book.sweep()
    assert book.find("L1", "me", "") is not None


def test_a_moment_says_its_milliseconds():
    assert moment(7.25) == "1970-01-01T00:00:07.250Z"
