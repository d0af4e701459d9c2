"""The watch against a scripted API server: what it asks, where it resumes, what it survives."""

import asyncio
import json

import pytest

PORTS = [{"name": "cdp", "port": 9222}]
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


def a_slice(name, *uids, version="1", ready=True):
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.0.0.{uid[1:]}"], "conditions": {"ready": ready}, "targetRef": {"uid": uid}}
            for uid in uids
        ],
        "ports": PORTS,
    }


async def test_the_list_asks_for_a_consistent_read_of_one_service(api, watching):
    # no resourceVersion, for version 0 may be answered from a cache of the past
    async with watching():
        call = await api.next()
        assert call.query.keys() == {"labelSelector", "limit"}
        assert call.query["labelSelector"] == "kubernetes.io/service-name=browsers"
        assert "Authorization" not in call.headers


async def test_the_watch_follows_from_the_lists_version(api, watching):
    # item versions in any order are not the list's
    async with watching() as bench:
        call = await api.next()
        assert not bench.watcher.listed
        call.list("900", a_slice("s1", "P1", version="880"), a_slice("s2", "P2", version="12"))
        watch = await api.next()
        assert bench.watcher.listed
        assert watch.watch
        assert watch.query["resourceVersion"] == "900"
        assert watch.query["allowWatchBookmarks"] == "true"
        assert watch.query["timeoutSeconds"] == "24"  # less than the silence limit of 30
        watch.stream().cut()
        assert (await api.next()).query["resourceVersion"] == "900"
        assert await bench.seen() == {"P1": True, "P2": True}
        assert bench.restarts() == {"broken": 1}


async def test_versions_are_opaque(api, watching):
    async with watching() as bench:
        stream = await bench.begin("zz-9/!&", a_slice("s1", "P1"))
        stream.event("MODIFIED", a_slice("s1", "P1", version="aa 1"))
        stream.end()
        assert (await api.next()).query["resourceVersion"] == "aa 1"


async def test_events_change_the_pods(watching):
    async with watching() as bench:
        stream = await bench.begin("10", a_slice("s1", "P1"))
        assert await bench.seen() == {"P1": True}
        stream.event("ADDED", a_slice("s2", "P2"))
        assert await bench.seen() == {"P2": True}
        stream.event("MODIFIED", a_slice("s1", "P1", ready=False))
        assert await bench.seen() == {"P1": False}
        stream.event("DELETED", a_slice("s2", "P2"))
        assert await bench.seen() == {"P2": None}


async def test_a_bookmark_changes_only_the_resume_point(api, watching):
    async with watching() as bench:
        stream = await bench.begin("10")
        stream.event("ADDED", a_slice("s1", "P1", version="11"))
        bookmark = {
            "kind": "EndpointSlice",
            "metadata": {"resourceVersion": "50"},
            "endpoints": None,
            "ports": None,
        }
        stream.event("BOOKMARK", bookmark)
        stream.event("ADDED", a_slice("s2", "P2", version="49"))
        stream.event("BOOKMARK", {**bookmark, "metadata": {"name": "s1", "resourceVersion": "60"}})
        assert await bench.seen() == {"P1": True}
        assert await bench.seen() == {"P2": True}
        stream.cut()
        assert (await api.next()).query["resourceVersion"] == "60"
        assert bench.changes.empty()


async def test_a_list_in_pages_is_one_list(api, watching):
    async with watching() as bench:
        (await api.next()).list("10", a_slice("s1", "P1"), more="token&1")
        second = await api.next()
        assert second.query["continue"] == "token&1"
        assert "resourceVersion" not in second.query
        assert bench.changes.empty()
        second.list("10", a_slice("s2", "P2"))
        assert (await api.next()).query["resourceVersion"] == "10"
        assert await bench.seen() == {"P1": True, "P2": True}


async def test_pages_that_grew_too_old_are_listed_whole(api, watching):
    async with watching() as bench:
        (await api.next()).list("10", a_slice("s1", "P1"), more="old")
        (await api.next()).json(GONE, status=410)
        again = await api.next()
        assert again.query.keys() == {"labelSelector"}
        again.list("20", a_slice("s1", "P2"))
        assert await bench.seen() == {"P2": True}
        assert bench.restarts() == {"gone": 1}


@pytest.mark.parametrize(
    "form", ["event", "event without a code", "event without a reason", "status", "status without a body"]
)
async def test_410_in_any_form_lists_again(api, watching, form):
    async with watching() as bench:
        stream = await bench.begin("10", a_slice("s1", "P1"))
        await bench.change()
        if form.startswith("event"):
            left_out = form.rpartition(" ")[2]
            stream.event("ERROR", {key: value for key, value in GONE.items() if key != left_out})
        else:
            stream.end()
            (await api.next()).json(GONE if form == "status" else b"", status=410)
        call = await api.next()
        assert not call.watch
        call.list("99", a_slice("s9", "P9"))
        assert await bench.seen() == {"P9": True, "P1": None}
        assert bench.restarts()["gone"] == 1


async def test_another_error_event_waits_and_lists_again(api, watching):
    async with watching() as bench:
        stream = await bench.begin()
        stream.event("ERROR", {"code": 500, "message": "storage", "details": {"retryAfterSeconds": 7}})
        assert not (await api.next()).watch
        assert bench.restarts() == {"error": 1}
        assert 7 < bench.pauses.taken[0] < 8


@pytest.mark.parametrize("raw", [None, [], "x", {"code": "no"}])
async def test_an_error_event_of_any_shape(api, watching, raw):
    async with watching() as bench:
        stream = await bench.begin()
        stream.event("ERROR", raw)
        assert not (await api.next()).watch
        assert bench.restarts() == {"error": 1}


async def test_unknown_events_are_logged_once_and_passed_over(watching):
    async with watching() as bench:
        stream = await bench.begin()
        for _ in range(3):
            stream.event("SURPRISE", a_slice("s1", "P1"))
        stream.raw(b'{"object": {}}\n')
        stream.event("ADDED", a_slice("s2", "P2"))
        assert await bench.seen() == {"P2": True}
        assert [line["type"] for line in bench.logged("watch-event-unknown")] == ["SURPRISE", "None"]


async def test_lists_and_watches_that_fail_are_tried_again_for_ever(api, watching):
    async with watching() as bench:
        for _ in range(2):
            (await api.next()).json({"code": 500}, status=500)
        (await api.next()).list("10", a_slice("s1", "P1"))
        for _ in range(3):
            call = await api.next()
            assert call.query["resourceVersion"] == "10"
            call.json(b"slow down", status=429, Retry_After="1")
        (await api.next()).stream().event("ADDED", a_slice("s2", "P2"))
        assert await bench.seen() == {"P1": True}
        assert await bench.seen() == {"P2": True}
        assert bench.restarts() == {"refused": 5}
        assert all(seconds >= 1 for seconds in bench.pauses.taken[2:5])
        assert all(line["reason"] == "refused" for line in bench.logged("watch-restarted"))


async def test_an_api_server_away_and_back(api, watching, clock):
    # the known pool stands, the age tells
    async with watching() as bench:
        await bench.begin("10", a_slice("s1", "P1"))
        await bench.change()
        bench.pauses.gate.clear()
        await api.close()
        clock.now += 30
        async with asyncio.timeout(20):
            await bench.pauses.begun.get()
        bench.pauses.gate.set()
        async with asyncio.timeout(20):  # two refused connections at least
            await bench.pauses.begun.get()
            await bench.pauses.begun.get()
        assert bench.watcher.age_s(clock.now) >= 30
        assert bench.watcher.listed
        assert bench.changes.empty()
        await api.open()
        (await api.next()).stream().event("MODIFIED", a_slice("s1", "P1", ready=False))
        assert await bench.seen() == {"P1": False}
        assert bench.watcher.age_s(clock.now) == 0


async def test_a_fault_of_the_reader_ends_the_watcher(watching):
    # the task must not die in silence; the task group ends the process
    def broken(_change):
        raise OSError("a bug that looks like a network error")

    with pytest.raises(ExceptionGroup) as caught:
        async with watching() as bench:
            bench.on_change = broken
            await bench.begin("10", a_slice("s1", "P1"))
    assert caught.group_contains(OSError, match="a bug")


async def test_the_token_is_read_again_after_a_401(api, watching, tmp_path):
    token = tmp_path / "token"
    token.write_text("old\n")
    async with watching(kube_token_file=str(token)) as bench:
        call = await api.next()
        assert call.headers["Authorization"] == "Bearer old"
        call.list("10")
        stream = (await api.next()).stream()
        token.write_text("new\n")
        stream.cut()
        refused = await api.next()
        assert refused.headers["Authorization"] == "Bearer old"
        refused.json({"code": 401}, status=401)
        back = await api.next()
        assert (back.headers["Authorization"], back.query["resourceVersion"]) == ("Bearer new", "10")
        assert bench.restarts() == {"broken": 1, "unauthorized": 1}
        assert bench.pauses.taken[-1] <= 0.1


async def test_the_token_is_read_again_each_minute(api, watching, tmp_path, clock):
    token = tmp_path / "token"
    token.write_text("old")
    async with watching(kube_token_file=str(token)) as bench:
        stream = await bench.begin()
        token.write_text("new")
        clock.now += 61
        stream.end()
        again = await api.next()
        assert again.headers["Authorization"] == "Bearer new"
        token.unlink()
        clock.now += 61
        again.stream().end()
        assert (await api.next()).headers["Authorization"] == "Bearer new"
        assert len(bench.logged("kube-token-unreadable")) == 1


async def test_silence_ends_the_watch_and_resumes(api, watching):
    async with watching(watch_silence_s=1.0) as bench:
        await bench.begin("10", a_slice("s1", "P1"))
        again = await api.next()
        assert again.query["resourceVersion"] == "10"
        assert again.query["timeoutSeconds"] == "1"
        assert bench.restarts().keys() == {"silence"}


async def test_an_answer_that_never_comes_is_silence_too(api, watching):
    async with watching(watch_silence_s=0.2) as bench:
        await api.next()
        assert not (await api.next()).watch
        assert bench.restarts().keys() == {"silence"}


async def test_a_line_of_two_megabytes_in_small_chunks(watching):
    async with watching() as bench:
        stream = await bench.begin()
        big = a_slice("s1", "P1")
        big["metadata"]["annotations"] = {"x": "é" * 1_000_000}
        line = json.dumps({"type": "ADDED", "object": big}, ensure_ascii=False).encode() + b"\n"
        assert len(line) > 2_000_000
        for start in range(0, len(line), 100_001):
            stream.raw(line[start : start + 100_001])
        assert await bench.seen() == {"P1": True}


async def test_lines_cut_anywhere_and_glued(watching):
    async with watching() as bench:
        stream = await bench.begin()
        lines = b"".join(
            json.dumps({"type": "ADDED", "object": a_slice(f"s{n}", f"P{n}")}).encode() + b"\r\n\n"
            for n in range(3)
        )
        stream.raw(lines[:300])
        for position in range(300, 330):
            stream.raw(lines[position : position + 1])
        stream.raw(lines[330:])
        assert [await bench.seen() for _ in range(3)] == [{"P0": True}, {"P1": True}, {"P2": True}]


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"type": 5}\n', b"\xff\xfe\n"])
async def test_a_line_that_is_no_event_lists_again(api, watching, line):
    async with watching() as bench:
        stream = await bench.begin()
        stream.raw(line)
        assert not (await api.next()).watch
        assert bench.restarts() == {"garbage": 1}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>", b"{}", b'{"metadata": null, "items": null}', b"\xff"]
)
async def test_a_list_that_is_none_is_tried_again(api, watching, body):
    async with watching() as bench:
        (await api.next()).json(body)
        (await api.next()).list("10", a_slice("s1", "P1"))
        assert await bench.seen() == {"P1": True}
        assert bench.restarts() == {"garbage": 1}


async def test_null_items_and_one_bad_slice_spoil_nothing(watching):
    async with watching() as bench:
        bad = a_slice("bad", "P3")
        bad["endpoints"][0]["addresses"] = "10.0.0.3"
        stream = await bench.begin(
            "10", bad, a_slice("s1", "P1"), {"metadata": {"name": "n"}, "endpoints": None}
        )
        assert await bench.seen() == {"P1": True}
        stream.event("ADDED", bad)
        stream.event("ADDED", None)
        stream.event("ADDED", a_slice("s2", "P2"))
        assert await bench.seen() == {"P2": True}
        assert len(bench.logged("slice-unreadable")) == 3
        assert bench.restarts() == {}


async def test_a_version_that_is_refused_for_ever_is_given_up(api, watching):
    # after a restore of etcd the server answers 504 "too large resource version" to every watch
    async with watching() as bench:
        (await api.next()).list("999999")
        watches = 0
        while (call := await api.next()).watch:
            watches += 1
            assert watches < 20
            call.json({"reason": "Timeout", "code": 504}, status=504)
        call.list("5", a_slice("s1", "P1"))
        assert await bench.seen() == {"P1": True}
        assert (await api.next()).query["resourceVersion"] == "5"


async def test_a_400_lists_again_at_once(api, watching):
    async with watching() as bench:
        stream = await bench.begin()
        stream.end()
        (await api.next()).json({"code": 400}, status=400)
        assert not (await api.next()).watch
        assert bench.restarts() == {"closed": 1, "refused": 1}


async def test_redirects_are_not_followed(api, watching):
    async with watching() as bench:
        first = await api.next()
        first.json(b"", status=302, Location=f"{first.path}?followed=1")
        assert "followed" not in (await api.next()).query
        assert bench.restarts() == {"refused": 1}


async def test_a_server_that_closes_at_once_is_not_hammered(api, watching):
    async with watching() as bench:
        (await api.next()).list("10")
        for _ in range(8):
            (await api.next()).stream().end()
        await api.next()
        taken = bench.pauses.taken
        assert bench.restarts() == {"closed": 8}
        assert taken[-1] > 10 * taken[0]


async def test_a_server_that_speaks_and_closes_at_once_is_not_hammered_either(api, watching):
    async with watching() as bench:
        (await api.next()).list("10")
        for version in range(8):
            stream = (await api.next()).stream()
            stream.event("BOOKMARK", {"metadata": {"resourceVersion": f"{version}"}})
            stream.end()
        await api.next()
        assert bench.pauses.taken[-1] > 10 * bench.pauses.taken[0]


@pytest.mark.parametrize("how", ["end", "cut"])
async def test_a_quiet_watch_that_lasted_is_no_failure_however_it_ends(api, watching, clock, how):
    async with watching() as bench:
        (await api.next()).list("10")
        for _ in range(8):
            stream = (await api.next()).stream()
            opened_at = clock.now = clock.now + 1
            async with asyncio.timeout(20):
                while bench.watcher.age_s(opened_at) > 0:
                    await asyncio.sleep(0.005)  # the watch stands
            clock.now += 3
            getattr(stream, how)()
        stream = (await api.next()).stream()
        assert max(bench.pauses.taken) <= 0.1
        stream.event("ADDED", a_slice("s1", "P1"))
        assert await bench.seen() == {"P1": True}


async def test_a_healthy_watch_forgets_failures(api, watching, clock):
    async with watching() as bench:
        for _ in range(6):
            (await api.next()).json({}, status=503)
        stream = await bench.begin()
        stream.event("ADDED", a_slice("s1", "P1"))
        await bench.seen()
        clock.now += 2
        stream.end()
        await api.next()
        assert bench.pauses.taken[5] > 1
        assert bench.pauses.taken[6] <= 0.1


async def test_fqdn_slices_are_noticed_in_the_log_once(watching):
    async with watching() as bench:
        named = {**a_slice("sf", "P1"), "addressType": "FQDN"}
        stream = await bench.begin("10", named)
        stream.event("MODIFIED", named)
        stream.event("ADDED", a_slice("s1", "P1"))
        assert await bench.seen() == {"P1": True}
        assert len(bench.logged("slice-notice")) == 1


async def test_an_endpoint_whose_address_is_no_ip_is_noticed_once_and_counted(watching):
    odd = a_slice("s1", "P1")
    odd["endpoints"][0]["addresses"] = ["pod.example"]
    async with watching() as bench:
        stream = await bench.begin("10", odd)
        stream.event("MODIFIED", odd)
        stream.event("ADDED", a_slice("s2", "P2"))
        assert await bench.seen() == {"P2": True}
        (line,) = bench.logged("slice-notice")
        assert "'pod.example'" in line["detail"]
        assert bench.metrics.endpoints_ignored.value == 1


async def test_a_page_or_event_that_nests_without_end_is_garbage(api, watching):
    deep = b'{"type":"ADDED","object":' + b"[" * 100_000
    async with watching() as bench:
        stream = await bench.begin()
        stream.raw(deep + b"\n")
        (await api.next()).json(deep)
        assert not (await api.next()).watch
        assert bench.restarts() == {"garbage": 2}
