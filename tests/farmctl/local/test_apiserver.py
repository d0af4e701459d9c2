"""The API server by a real client: list, watch, bookmarks, 410 in both forms, outage, hand-made slices."""

import asyncio
import json

import aiohttp
import pytest

from farmctl.testbeds.local.control_plane.apiserver import ApiServer
from farmctl.testbeds.local.control_plane.endpoints import slice_of
from farmctl.testbeds.local.control_plane.store import Store
from farmctl.testbeds.local.control_plane.watches import Bell

PATH = "/apis/discovery.k8s.io/v1/namespaces/farm/endpointslices"
SELECT = {"labelSelector": "kubernetes.io/service-name=browsers"}


def obj(name, service="browsers"):
    return slice_of(name=name, namespace="farm", service=service, port=("cdp", 9222), endpoints=[])


class Api:
    def __init__(self, server, store, session):
        self.server, self.store, self.session = server, store, session

    def get(self, **query):
        return self.session.get(f"http://127.0.0.1:{self.server.port}{PATH}", params=query)

    async def list(self, **query):
        async with self.get(**SELECT, **query) as answer:
            return answer.status, await answer.json()

    def watch(self, **query):
        return self.get(watch="true", **SELECT, **query)


@pytest.fixture
async def api():
    bell = Bell()
    store = Store(history=5, on_change=bell.ring)
    server = ApiServer(
        store, bell, namespace="farm", bookmark_s=0.05, list_pods=lambda: [{"metadata": {"name": "p"}}]
    )
    await server.start()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield Api(server, store, session)
    await server.stop()


async def events(answer, count):
    found = []
    async for line in answer.content:
        found.append(json.loads(line))
        if len(found) == count:
            break
    return found


async def test_list_selects_and_says_its_version(api):
    api.store.create(obj("a"))
    api.store.create(obj("b", service="other"))
    status, answer = await api.list()
    assert status == 200
    assert [one["metadata"]["name"] for one in answer["items"]] == ["a"]
    assert answer["metadata"]["resourceVersion"] == str(api.store.version)
    assert answer["kind"] == "EndpointSliceList"


async def test_list_in_pieces(api):
    for name in "abc":
        api.store.create(obj(name))
    _, first = await api.list(limit="2")
    api.store.create(obj("d"))
    _, second = await api.list(limit="2", **{"continue": first["metadata"]["continue"]})
    names = [one["metadata"]["name"] for one in first["items"] + second["items"]]
    assert names == ["a", "b", "c", "d"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]


async def test_continue_of_a_forgotten_list_is_410(api):
    for name in "abc":
        api.store.create(obj(name))
    _, first = await api.list(limit="1")
    for _ in range(6):
        api.store.put(obj("a"))
    status, answer = await api.list(limit="1", **{"continue": first["metadata"]["continue"]})
    assert (status, answer["reason"]) == (410, "Expired")


async def test_watch_from_a_version_sees_every_later_change(api):
    api.store.create(obj("a"))
    _, answer = await api.list()
    api.store.put(obj("a"))
    async with api.watch(resourceVersion=answer["metadata"]["resourceVersion"]) as stream:
        api.store.create(obj("b"))
        api.store.create(obj("x", service="other"))
        api.store.delete("a")
        seen = await events(stream, 3)
    assert [(one["type"], one["object"]["metadata"]["name"]) for one in seen] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]


async def test_watch_without_a_version_begins_with_what_is_there(api):
    api.store.create(obj("a"))
    async with api.watch() as stream:
        api.store.create(obj("b"))
        seen = await events(stream, 2)
    assert [(one["type"], one["object"]["metadata"]["name"]) for one in seen] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]


async def test_bookmark_carries_only_a_version(api):
    async with api.watch(allowWatchBookmarks="true", resourceVersion=str(api.store.version)) as stream:
        api.store.create(obj("x", service="other"))
        mark = (await events(stream, 1))[0]
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["endpoints"] is None
    assert mark["object"]["metadata"]["resourceVersion"] == str(api.store.version)


async def test_no_bookmarks_unless_asked_for_and_the_watch_ends_on_time(api):
    async with api.watch(timeoutSeconds="0.3", resourceVersion=str(api.store.version)) as stream:
        assert await stream.read() == b""


async def test_version_too_old_is_410_by_status(api):
    start = api.store.version
    for _ in range(7):
        api.store.put(obj("a"))
    async with api.watch(resourceVersion=str(start)) as answer:
        assert answer.status == 410
        assert (await answer.json())["reason"] == "Expired"


async def test_watcher_that_falls_behind_is_told_in_the_stream(api):
    async with api.watch(resourceVersion=str(api.store.version)) as stream:
        for _ in range(9):  # in one tick of the loop: more than the history holds
            api.store.put(obj("a"))
        seen = await events(stream, 1)
    assert seen[0]["type"] == "ERROR"
    assert seen[0]["object"]["code"] == 410


@pytest.mark.parametrize("query", [{"labelSelector": "a in (b)"}, {"watch": "1", "resourceVersion": "x"}])
async def test_nonsense_is_400(api, query):
    async with api.get(**query) as answer:
        assert answer.status == 400


async def test_outage_breaks_watches_and_keeps_port_store_and_versions(api):
    api.store.create(obj("a"))
    port, before = api.server.port, api.store.version
    async with api.watch(resourceVersion=str(before)) as stream:
        await api.server.stop()
        with pytest.raises(aiohttp.ClientError):
            await stream.read()
    with pytest.raises(aiohttp.ClientError):
        await api.list()
    api.store.put(obj("a"))
    await api.server.start()
    assert api.server.port == port
    _, answer = await api.list()
    assert int(answer["metadata"]["resourceVersion"]) > before
    async with api.watch(resourceVersion=str(before)) as stream:
        assert [one["type"] for one in await events(stream, 1)] == ["MODIFIED"]


async def test_stop_and_start_twice_are_fine(api):
    await api.server.stop()
    await api.server.stop()
    await api.server.start()
    await api.server.start()
    assert (await api.list())[0] == 200


async def test_hand_made_slices(api):
    url = f"http://127.0.0.1:{api.server.port}{PATH}"
    async with api.session.post(url, json=obj("mine")) as answer:
        assert answer.status == 201
    async with api.session.post(url, json=obj("mine")) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (409, "AlreadyExists")
    async with api.session.put(f"{url}/mine", json=obj("mine", service="other")) as answer:
        assert answer.status == 200
    async with api.session.get(f"{url}/mine") as answer:
        assert (await answer.json())["metadata"]["labels"]["kubernetes.io/service-name"] == "other"
    async with api.session.delete(f"{url}/mine") as answer:
        assert answer.status == 200
    async with api.session.delete(f"{url}/mine") as answer:
        assert answer.status == 404
    async with api.session.put(f"{url}/mine", json=obj("mine")) as answer:
        assert answer.status == 404
    async with api.session.post(url, json={"kind": "Pod"}) as answer:
        assert answer.status == 422


async def test_pods_are_listed_and_other_namespaces_are_not(api):
    base = f"http://127.0.0.1:{api.server.port}/api/v1/namespaces"
    async with api.session.get(f"{base}/farm/pods") as answer:
        assert (await answer.json())["items"] == [{"metadata": {"name": "p"}}]
    async with api.session.get(f"{base}/kube-system/pods") as answer:
        assert answer.status == 404


async def test_two_watchers_hear_the_same(api):
    async with api.watch(resourceVersion=str(api.store.version)) as one, api.watch() as two:
        api.store.create(obj("a"))
        heard = await asyncio.gather(events(one, 1), events(two, 1))
    assert heard[0] == heard[1]
