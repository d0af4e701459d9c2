"""EndpointSlice semantics as tables: what one event after another makes of the pods."""

import pytest
from farmproxy.core.events import PodsChanged, PodSeen
from farmproxy.kube.endpoint_slices import EndpointSlice
from farmproxy.kube.slice_sets import SliceBook
from msgspec import convert

PORTS = [{"name": "cdp", "port": 9222, "protocol": "TCP"}]


def end(uid=None, address="10.0.0.9", conditions=None, **more):
    endpoint = {"addresses": [address], **more}
    if uid:
        endpoint["targetRef"] = {"kind": "Pod", "name": uid.lower(), "uid": uid}
    if conditions is not None:
        endpoint["conditions"] = {"ready": "R" in conditions, "terminating": "T" in conditions}
    return endpoint


def a_slice(name, *endpoints, ports=PORTS, kind="IPv4"):
    raw = {"metadata": {"name": name}, "addressType": kind, "endpoints": list(endpoints), "ports": ports}
    return convert(raw, EndpointSlice)


def pod(key="P1", *, ready=True, terminating=False, fresh=False, address="10.0.0.9", name=None):
    return PodSeen(key, name or key.lower(), address, 9222, ready, terminating, fresh)


def told(*seen, gone=()):
    return PodsChanged("default", tuple(seen), tuple(gone))


@pytest.fixture
def book():
    return SliceBook("default", "cdp")


def test_terminating_yet_ready_is_told_as_terminating(book):
    book.listed([a_slice("s1", end("P1", conditions="R"))])
    assert book.changed(a_slice("s1", end("P1", conditions="RT"))) == told(pod(terminating=True))


@pytest.mark.parametrize(
    "more", [{"conditions": {}}, {}, {"conditions": {"ready": True}}, {"conditions": None}]
)
def test_missing_conditions_are_ready_and_not_terminating(book, more):
    assert book.listed([a_slice("s1", {**end("P1"), **more})]) == told(pod())


@pytest.mark.parametrize("nil", [{"ready": None}, {"terminating": None}, {"serving": False}])
def test_nil_conditions(book, nil):
    assert book.listed([a_slice("s1", {**end("P1"), "conditions": nil})]) == told(pod())


def test_only_the_readiness_bit_changes(book):
    ready, unready = a_slice("s1", end("P1", conditions="R")), a_slice("s1", end("P1", conditions=""))
    assert book.changed(ready) == told(pod())
    assert book.changed(unready) == told(pod(ready=False))
    assert book.changed(ready) == told(pod(fresh=True))
    assert book.changed(ready) == told()


def test_dual_stack_twins_are_one_pod(book):
    four = a_slice("s4", end("P1", "10.0.0.9", "R"))
    six = a_slice("s6", end("P1", "fd00::9", "R"), kind="IPv6")
    assert book.listed([six, four]) == told(pod(address="10.0.0.9"))
    assert book.deleted("s4") == told(pod(address="fd00::9"))
    assert book.changed(four) == told(pod(address="10.0.0.9"))
    assert book.deleted("s6") == told()


def test_ipv4_is_kept_when_the_ipv6_twin_speaks_later(book):
    # the later word is about the state, not about the family
    book.listed([a_slice("b", end("P1", "10.0.0.9", "R"))])
    assert book.changed(a_slice("a", end("P1", "fd00::9", ""), kind="IPv6")) == told(pod(ready=False))


def test_fqdn_slices_are_ignored_and_noticed_once(book):
    named = a_slice("sf", end("P1", "pod.example", "R"), kind="FQDN")
    assert book.listed([named]) == told()
    assert book.changed(named) == told()
    assert len(book.notices) == 1
    assert "sf" in book.notices[0]
    assert "FQDN" in book.notices[0]


def test_orphans_without_target_are_keyed_by_address(book):
    orphan = end(None, "10.9.9.9", "R")
    six = end(None, "fd00::9", "R")
    change = book.listed(
        [a_slice("s1", orphan), a_slice("s2", end("P1", conditions="R")), a_slice("s3", six, kind="IPv6")]
    )
    assert [seen.key for seen in change.seen] == ["10.9.9.9:9222", "P1", "[fd00::9]:9222"]
    assert change.seen[0].name == "10.9.9.9:9222"


def test_the_later_event_wins(book):
    book.listed([a_slice("s1", end("P1", conditions="R"))])
    assert book.changed(a_slice("s2", end("P1", conditions=""))) == told(pod(ready=False))
    # The same words again, but later now: the controller wrote this slice knowing better.
    assert book.changed(a_slice("s1", end("P1", conditions="R"))) == told(pod())


def test_one_list_that_disagrees_means_not_free(book):
    change = book.listed([a_slice("s1", end("P1", conditions="R")), a_slice("s2", end("P1", conditions=""))])
    assert change == told(pod(ready=False))
    change = book.listed(
        [a_slice("s1", end("P1", conditions="R")), a_slice("s2", end("P1", conditions="RT"))]
    )
    assert change == told(pod(terminating=True))


@pytest.mark.parametrize("words", [("R", ""), ("", "R")])
def test_one_slice_that_disagrees_with_itself_means_not_free(book, words):
    change = book.changed(a_slice("s1", *(end("P1", conditions=word) for word in words)))
    assert change == told(pod(ready=False))


def test_a_pod_is_gone_only_when_no_slice_has_it(book):
    book.listed([a_slice("s1", end("P1", conditions="R")), a_slice("s2", end("P1", conditions="R"))])
    assert book.changed(a_slice("s1")) == told()
    assert book.deleted("s2") == told(gone=["P1"])


def test_a_pod_moves_between_slices(book):
    book.listed([a_slice("s1", end("P1", conditions="R")), a_slice("s2")])
    assert book.changed(a_slice("s2", end("P1", conditions="R"))) == told()
    assert book.changed(a_slice("s1")) == told()
    assert book.deleted("s1") == told()


def test_the_older_slice_speaks_again_when_the_newer_falls_silent(book):
    book.listed([a_slice("s1", end("P1", conditions="R"))])
    book.changed(a_slice("s2", end("P1", conditions="")))
    # No slice went from not-ready to ready: the union did.
    assert book.deleted("s2") == told(pod())


def test_a_list_replaces_all_and_proves_no_fresh_readiness(book):
    book.listed([a_slice("s1", end("P1", conditions=""), end("P2", "10.0.0.8", "R"))])
    change = book.listed([a_slice("s9", end("P1", conditions="R"))])
    assert change == told(pod(), gone=["P2"])
    assert book.deleted("s1") == told()


def test_a_new_pod_is_not_freshly_ready(book):
    assert book.changed(a_slice("s1", end("P1", conditions="R"))) == told(pod())


def test_fresh_readiness_of_an_older_twin_is_told(book):
    book.listed([a_slice("s1", end("P1", conditions=""))])
    book.changed(a_slice("s2", end("P1", conditions="R")))
    assert book.changed(a_slice("s1", end("P1", conditions="R"))) == told(pod(fresh=True))


@pytest.mark.parametrize(
    "ports",
    [
        None,
        [],
        [None],
        [{"name": None, "port": 9222}],
        [{"name": "", "port": 9222}],
        [{"name": "http", "port": 80}],
        [{"name": "cdp"}],
        [{"name": "cdp", "port": None}],
        [{"name": "cdp", "port": 0}],
        [{"name": "cdp", "port": -1}],
        [{"name": "cdp", "port": 65536}],
        [{"name": "cdp", "port": 9222, "protocol": "UDP"}],
    ],
)
def test_without_a_port_of_the_name_there_is_no_pod(book, ports):
    assert book.changed(a_slice("s1", end("P1", conditions="R"), ports=ports)) == told()


def test_losing_the_port_loses_the_pods(book):
    book.listed([a_slice("s1", end("P1", conditions="R"))])
    assert book.changed(a_slice("s1", end("P1", conditions="R"), ports=None)) == told(gone=["P1"])


def test_the_port_is_found_among_others(book):
    ports = [{"name": "http", "port": 80}, {"name": "cdp", "port": 9222}]
    assert book.changed(a_slice("s1", end("P1", conditions="R"), ports=ports)) == told(pod())


@pytest.mark.parametrize("addresses", [None, [], [""], [None]])
def test_an_endpoint_without_an_address_is_no_pod(book, addresses):
    assert book.changed(a_slice("s1", {**end("P1"), "addresses": addresses})) == told()


def test_a_slice_of_nothing(book):
    assert book.changed(convert({}, EndpointSlice)) == told()
    assert book.changed(convert({"metadata": {"name": "s1"}, "endpoints": None}, EndpointSlice)) == told()
    assert book.deleted("never-seen") == told()
    assert book.listed([convert({"metadata": None}, EndpointSlice)]) == told()


def test_a_moved_address_is_told(book):
    book.listed([a_slice("s1", end("P1", "10.0.0.9", "R"))])
    assert book.changed(a_slice("s1", end("P1", "10.0.0.10", "R"))) == told(pod(address="10.0.0.10"))


def test_a_new_uid_at_the_same_address_is_another_pod(book):
    book.listed([a_slice("s1", end("P1", conditions="R"))])
    assert book.changed(a_slice("s1", end("P2", conditions="R"))) == told(pod("P2"), gone=["P1"])


def test_an_unfinished_list_changes_nothing(book):
    book.listed([a_slice("s1", end("P1", conditions="R"))])
    book.listing().add(a_slice("s2", end("P2", conditions="R")))
    assert book.changed(a_slice("s1", end("P1", conditions="R"))) == told()


def test_an_event_tells_only_what_changed(book):
    hundred = [end(f"P{n}", f"10.0.0.{n}", "R") for n in range(100)]
    book.listed([a_slice("s1", *hundred)])
    hundred[7] = end("P7", "10.0.0.7", "")
    assert [seen.key for seen in book.changed(a_slice("s1", *hundred)).seen] == ["P7"]


def test_a_slice_without_a_name_changes_nothing(book):
    # a bookmark looks so
    book.listed([a_slice("s1", end("P1", conditions="R"))])
    assert book.changed(a_slice("", end("P2", conditions="R"))) == told()
    assert book.listed([a_slice("s1", end("P1", conditions="R")), a_slice("", end("P2"))]) == told()


def test_a_list_of_what_is_known_tells_nothing(book):
    slices = [a_slice("s1", end("P1"), end("P2", "10.0.0.8", "")), a_slice("s2", end("P1"))]
    book.listed(slices)
    assert book.listed(slices) == told()


def test_the_later_word_gives_the_address_of_its_family(book):
    book.listed([a_slice("s1", end("P1", "10.0.0.1", "R")), a_slice("s2", end("P1", "10.0.0.2", "R"))])
    assert book.changed(a_slice("s2", end("P1", "10.0.0.3", "R"))) == told(pod(address="10.0.0.3"))
    assert book.changed(a_slice("s1", end("P1", "10.0.0.1", "R"))) == told(pod(address="10.0.0.1"))
    # of one list the first by name: every proxy takes the same
    assert book.listed([a_slice("s2", end("P1", "10.0.0.2")), a_slice("s1", end("P1", "10.0.0.1"))]) == told()


@pytest.mark.parametrize("way", ["deleted", "not in a list"])
def test_a_slice_that_was_gone_is_noticed_again(book, way):
    names = a_slice("s1", end("P1", "host.example"), kind="FQDN")
    book.changed(names)
    book.changed(names)
    assert len(book.notices) == 1
    book.listed([names])
    assert len(book.notices) == 1
    if way == "deleted":
        book.deleted("s1")
    else:
        book.listed([])
    book.changed(names)
    assert len(book.notices) == 2


def test_a_slice_that_nobody_knew_may_be_deleted(book):
    assert book.deleted("s1") == told()


def test_a_slice_that_says_nothing_new_takes_no_new_memory(book):
    # a list of a thousand slices comes each few minutes, and nearly all of it is known
    book.listed([a_slice("s1", end("P1"))])
    again = book.read(a_slice("s1", end("P1")))
    assert again is book.read(a_slice("s1", end("P1")))
    assert book.read(a_slice("s1", end("P2"))) is not again
