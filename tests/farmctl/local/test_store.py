"""Versions, history and what a selector makes of a change."""

import pytest

from farmctl.testbeds.local.control_plane import selectors
from farmctl.testbeds.local.control_plane.store import Conflict, Store, TooOld


def obj(name, **labels):
    return {"kind": "EndpointSlice", "metadata": {"name": name, "labels": labels}}


def test_changes_since_a_version():
    store = Store()
    start = store.version
    store.create(obj("a"))
    store.put(obj("a"))
    store.delete("a")
    assert [change.type for change in store.since(start)] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [change.version for change in store.since(start)]
    assert versions == sorted(set(versions))
    assert [str(change.version) for change in store.since(start)] == [
        change.slice["metadata"]["resourceVersion"] for change in store.since(start)
    ]
    assert store.since(store.version) == []


def test_forgotten_version_is_too_old():
    store = Store(history=2)
    start = store.version
    for _ in range(3):
        store.put(obj("a"))
    with pytest.raises(TooOld):
        store.since(start)
    assert len(store.since(start + 1)) == 2
    store.forget()
    with pytest.raises(TooOld):
        store.since(store.version - 1)
    assert store.since(store.version) == []


def test_create_twice_is_a_conflict_and_delete_of_nothing_is_none():
    store = Store()
    store.create(obj("a"))
    with pytest.raises(Conflict):
        store.create(obj("a"))
    assert store.delete("b") is None


@pytest.mark.parametrize(
    ("text", "labels", "holds"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "2"}, False),
        ("a=1,b!=2", {"a": "1"}, True),
        ("a=1,b!=2", {"a": "1", "b": "2"}, False),
        ("kubernetes.io/service-name=browsers", {"kubernetes.io/service-name": "browsers"}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
    ],
)
def test_selectors(text, labels, holds):
    assert selectors.parse(text)(labels) is holds


@pytest.mark.parametrize("text", ["a in (b)", "!a=b", "=b", "a=b c"])
def test_selector_not_understood_is_an_error(text):
    with pytest.raises(ValueError, match="unable to parse"):
        selectors.parse(text)


def test_leaving_and_entering_a_selection():
    store = Store()
    start = store.version
    store.create(obj("a", service="x"))
    store.put(obj("a", service="y"))
    store.put(obj("a", service="x"))
    store.put(obj("a", service="x", other="1"))
    store.delete("a")
    seen = [selectors.as_seen(change, selectors.parse("service=x")) for change in store.since(start)]
    assert [change.type for change in seen] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    other = [selectors.as_seen(change, selectors.parse("service=z")) for change in store.since(start)]
    assert other == [None] * 5
