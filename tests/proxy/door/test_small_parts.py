"""Parts that decide without sockets: ends, timers, ids, the lease book."""

import pytest
from farmproxy.net.timeouts import Timeouts
from farmproxy.registry.end_reasons import settled
from farmproxy.registry.ids import is_id, key_of, new_id
from farmproxy.registry.leases import Kind, Lease, LeaseBook, moment
from farmwire.reasons import End
from hypothesis import given
from hypothesis import strategies as st

TABLE = [
    # seen, by the pod's side, told, reached -> settled
    (End.DONE, True, End.BROWSER_DIED, True, End.BROWSER_DIED),
    (End.DONE, True, None, False, End.POD_LOST),
    (End.DONE, False, None, False, End.DONE),
    (End.DONE, False, None, True, End.DONE),
    (End.DONE, False, End.MAX, True, End.MAX),
    (End.POD_LOST, True, End.DONE, True, End.DONE),
    (End.POD_LOST, True, End.DRAINED, True, End.DRAINED),
    (End.POD_LOST, True, None, True, End.POD_LOST),
    (End.MAX, False, End.DONE, True, End.MAX),
    (End.STALL, False, End.DONE, True, End.STALL),
    (End.STALL, False, None, False, End.STALL),
    (End.DELETED, False, End.BROWSER_DIED, True, End.BROWSER_DIED),
]


@pytest.mark.parametrize(("seen", "by_pod", "told", "reached", "end"), TABLE)
def test_settled(seen, by_pod, told, reached, end):
    assert settled(seen, by_pod=by_pod, told=told, reached=reached) is end


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["start", "stop", "wait"])), max_size=40))
def test_timeouts_against_a_plain_model(steps):
    now = [0.0]
    timers = Timeouts(3.0, lambda: now[0])
    model = {}
    for key, step in steps:
        if step == "start":
            timers.start(key)
            model[key] = now[0]
        elif step == "stop":
            timers.stop(key)
            model.pop(key, None)
        else:
            now[0] += 1.0
            due = sorted(key for key, at in model.items() if now[0] - at >= 3.0)
            assert sorted(timers.expired()) == due
            model = {key: at for key, at in model.items() if key not in due}
        assert len(timers) == len(model)


def test_ids_sort_by_time_and_keys_are_128_bits():
    made = [(id_, key_of(id_)) for id_ in (new_id() for _ in range(100))]
    assert all(is_id(id_) and len(bytes.fromhex(key)) == 16 for id_, key in made)
    assert len({id_ for id_, _ in made}) == len({key for _, key in made}) == 100
    assert [id_[:9] for id_, _ in made] == sorted(id_[:9] for id_, _ in made)
    assert not is_id("01m8nwaawr7vz1w090nqpyfs4r")
    assert not is_id("")


def test_the_book_remembers_a_bounded_number(monkeypatch):
    monkeypatch.setattr("farmproxy.registry.history._REMEMBERED", 3)
    book = LeaseBook(lambda: 0.0)
    for number in range(5):
        lease = Lease(str(number), Kind.SOCKET, owner="", pool="p", label="", max_s=1, now=0)
        book.begin(lease)
        book.ended(lease, End.DONE)
    assert [book.find(str(number), "", "") is not None for number in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_moments_are_rfc_3339():
    assert moment(0.1239) == "1970-01-01T00:00:00.123Z"
