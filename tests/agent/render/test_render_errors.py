"""Each way a render job fails, on a real Chromium: its status, its reason and a detail that names the cause."""

import asyncio
import json
from ipaddress import ip_address
from urllib.parse import quote

import pytest
from farmagent.chrome import cdp
from farmagent.render import TargetPolicy, render, requests

pytestmark = pytest.mark.chrome
OPEN = TargetPolicy(everything=True)
BOTH = pytest.mark.parametrize("policy", [OPEN, None], ids=["open", "guarded"])


def raw(pages, markup: str, host: str = "127.0.0.1") -> str:
    return pages.url(f"/raw?html={quote(markup)}", host)


def failed(answer) -> tuple[int, str, str]:
    assert dict(answer.headers)["Content-Type"] == "application/json"
    found = json.loads(answer.body)
    assert set(found) == {"reason", "detail"}
    return answer.status, found["reason"], found["detail"]


def given(policy) -> dict:
    return {"policy": policy} if policy else {}


@BOTH
@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/loop", "net::ERR_TOO_MANY_REDIRECTS"),
        ("/status/500?empty", "net::ERR_HTTP_RESPONSE_CODE_FAILURE"),
        ("/basic", "net::ERR_INVALID_AUTH_CREDENTIALS"),
        ("/reset", "net::ERR_EMPTY_RESPONSE"),
        ("/redirect?to=file:///etc/passwd", "net::ERR_UNSAFE_REDIRECT"),
        ("/download", "net::ERR_ABORTED"),
        ("/status/204?empty", "net::ERR_ABORTED"),
    ],
)
async def test_a_navigation_error_is_told_in_chrome_s_words(rendering, pages, policy, path, word):
    status, reason, detail = failed(await rendering(pages.url(path), **given(policy)))
    assert (status, reason) == (422, "page-failed")
    assert detail.startswith(word)


@BOTH
async def test_a_closed_port(rendering, unused_tcp_port, policy):
    url = f"http://127.0.0.1:{unused_tcp_port}/"
    status, reason, detail = failed(await rendering(url, **given(policy)))
    assert (status, reason, detail) == (422, "page-failed", f"net::ERR_CONNECTION_REFUSED at {url}")


@BOTH
async def test_an_unknown_name(rendering, policy):
    status, reason, detail = failed(await rendering("http://nowhere.test/", **given(policy)))
    assert (status, reason) == (422, "page-failed")
    assert detail.startswith("net::ERR_NAME_NOT_RESOLVED")


async def test_a_page_that_goes_to_an_error_by_itself(rendering, pages, unused_tcp_port):
    markup = f"<script>location.href='http://127.0.0.1:{unused_tcp_port}/'</script><img src=/hang>"
    status, reason, detail = failed(await rendering(raw(pages, markup)))
    assert (status, reason) == (422, "page-failed")
    assert detail.startswith("net::ERR_CONNECTION_REFUSED")


@pytest.mark.parametrize(
    "host", ["127.0.0.3", "0x7f000003", "2130706435", "0177.3", "[::ffff:127.0.0.3]", "private.test"]
)
async def test_a_private_target_is_refused_however_it_is_written(rendering, pages, host):
    status, reason, _ = failed(await rendering(pages.url("/page", host)))
    assert (status, reason) == (403, "refused-target")
    assert pages.seen == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "chrome://settings", "javascript:1", "data:text/html,x"]
)
async def test_another_scheme_is_refused_whatever_the_policy(rendering, url):
    assert failed(await rendering(url, policy=OPEN))[:2] == (403, "refused-target")


@pytest.mark.parametrize("host", ["127.0.0.3", "private.test", "[::ffff:7f00:3]"])
async def test_a_redirect_to_a_private_target_is_refused(rendering, pages, host):
    url = pages.url(f"/redirect?to={pages.url('/page', host)}")
    assert failed(await rendering(url))[:2] == (403, "refused-target")
    assert pages.paths("127.0.0.3") == []


async def test_a_page_that_goes_to_a_private_target_by_itself_is_refused(rendering, pages):
    markup = f"<script>location.href='{pages.url('/page', '127.0.0.3')}'</script><img src=/hang>"
    assert failed(await rendering(raw(pages, markup)))[:2] == (403, "refused-target")
    assert pages.paths("127.0.0.3") == []


async def test_what_a_page_asks_of_private_targets_never_arrives(rendering, pages):
    """Images, fetches, frames, workers, frames' workers, WebSockets, redirects of all these."""
    private = pages.url("/image", "127.0.0.3")
    socket = private.replace("http", "ws").replace("/image", "/ws")
    worker = f"new Worker(URL.createObjectURL(new Blob([`fetch('{private}').catch(() => 0)`])))"
    inner = f"<img src='{private}'><script>{worker}</script>"
    markup = (
        f"<img src='{private}'><img src='/redirect?to={private}'><iframe src='{private}'></iframe>"
        f"<iframe src='{raw(pages, inner, 'b.test')}'></iframe>"
        f"<script>fetch('{private}', {{method: 'POST'}}).catch(() => 0);{worker};"
        f"navigator.sendBeacon('{private}');fetch('{pages.url('/image', 'private.test')}').catch(() => 0);"
        f"new WebSocket('{socket}').onerror = () => document.title = 'no socket'</script>"
    )
    answer = await rendering(raw(pages, markup), wait_until="networkidle", format="json")
    assert answer.status == 200, answer.body
    assert json.loads(answer.body)["title"] == "no socket"
    assert pages.paths("127.0.0.3") == []
    assert "raw" in pages.paths("127.0.0.2")
    assert dict(answer.headers)["Farm-Page-Refused"] == "2"  # 127.0.0.3 and private.test


async def test_the_same_page_does_arrive_where_the_policy_allows_it(rendering, pages):
    private = pages.url("/image", "127.0.0.3")
    policy = TargetPolicy.parse("127.0.0.0/8")
    answer = await rendering(raw(pages, f"<img src='{private}'>"), policy=policy)
    assert answer.status == 200
    assert pages.paths("127.0.0.3") == ["image"]
    assert "Farm-Page-Refused" not in dict(answer.headers)


async def test_a_name_that_changes_its_address_is_judged_each_time(chrome, pages):
    """DNS rebinding: the second answer is private, and it is the dialled address that counts."""
    asked = []

    async def rebind(_name, _port):
        asked.append(ip_address("127.0.0.3" if pages.seen else "127.0.0.1"))
        return asked[-1:]

    markup = f"<script>fetch('{pages.url('/page', 'x.test')}', {{cache: 'no-store'}})</script>"
    job = {"url": f"http://x.test:{pages.port}/raw?close&html={quote(markup)}", "timeout_s": 10}
    job["wait_until"] = "networkidle"
    policy = TargetPolicy.parse("127.0.0.1/32")
    answer = await render(chrome, json.dumps(job).encode(), policy=policy, resolver=rebind)
    assert answer.status == 200
    assert len(set(asked)) == 2
    assert pages.paths("127.0.0.3") == []
    assert dict(answer.headers)["Farm-Page-Refused"] == "1"


async def test_a_script_that_throws(rendering, pages):
    script = "(function deep() { throw new TypeError('no such thing') })()"
    status, reason, detail = failed(await rendering(pages.url("/page"), script=script))
    assert (status, reason) == (422, "script-failed")
    assert detail.startswith("TypeError: no such thing\n    at deep")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("throw 'plain'", "plain"),
        ("Promise.reject(new Error('later'))", "Error: later"),
        ("syntax error here", "SyntaxError"),
        ("const a = {}; a.a = a; a", "reference chain"),
    ],
)
async def test_other_ways_a_script_fails(rendering, pages, script, words):
    status, reason, detail = failed(await rendering(pages.url("/page"), script=script, format="json"))
    assert (status, reason) == (422, "script-failed")
    assert words in detail


async def test_a_selector_that_is_none(rendering, pages):
    status, reason, detail = failed(await rendering(pages.url("/page"), wait_for="p[["))
    assert (status, reason) == (400, "bad-request")
    assert "$.wait_for" in detail
    assert "p[[" in detail


async def target_of(browser, path):
    """A page's URL reaches the target list a moment after its first request reaches the server."""
    async with asyncio.timeout(20):
        while True:
            for one in (await browser.send("Target.getTargets"))["targetInfos"]:
                if path in one["url"]:
                    return one["targetId"]


async def test_a_crash_fails_the_job_only(chrome, rendering, pages):
    """Whatever the job waits for just then: here the load event and a script."""
    for options in ({}, {"wait_until": "commit", "script": "new Promise(() => {})"}):
        pages.arrived.clear()
        async with cdp.connect(chrome) as killer, asyncio.TaskGroup() as group:
            job = group.create_task(rendering(raw(pages, "<img src=/hang>"), **options))
            await asyncio.wait_for(pages.arrived.wait(), 20)
            session = await killer.attach(await target_of(killer, "/raw"))
            await killer.post("Page.crash", session_id=session)
            status, reason, _ = failed(await job)
        assert (status, reason) == (422, "page-crashed")
    assert (await rendering(pages.url("/page"))).status == 200


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("/hang", {}, "the server has not answered"),
        ("/raw?html=<img src=/hang>", {}, "waiting for load; 1 requests in flight"),
        ("/raw?html=<img src=/hang>", {"wait_until": "networkidle"}, "waiting for networkidle"),
        ("/page", {"wait_for": "#never"}, "no element matches #never"),
        ("/page", {"script": "new Promise(() => {})"}, "the script runs"),
        ("/page", {"script": "for (;;);"}, "the script runs"),
        ("/raw?html=<script>for (;;);</script>", {}, "waiting for load"),
    ],
)
async def test_a_page_that_never_settles(rendering, pages, path, options, words):
    url = pages.url(path.replace("<", "%3C").replace(" ", "%20"))
    for timeout_s in (1, 4, 16):  # on a busy machine the short ones end before the step in question
        status, reason, detail = failed(await rendering(url, timeout_s=timeout_s, **options))
        assert (status, reason) == (504, "not-settled")
        assert detail.startswith(f"not done within {timeout_s} s: ")
        if words in detail:
            return
    raise AssertionError(detail)


async def test_a_page_that_navigates_for_ever(rendering, pages):
    markup = "<script>location.href = location.href.split('#')[0] + '&' + Math.random()</script><img src=/late?s=1>"
    assert failed(await rendering(raw(pages, markup), timeout_s=2))[:2] == (504, "not-settled")


async def test_a_full_page_that_is_too_high(rendering, pages):
    answer = await rendering(raw(pages, "<p style='height:60000px'>"), format="png", full_page=True)
    assert failed(answer)[:2] == (413, "too-large")


@pytest.mark.parametrize("kind", ["html", "text", "json"])
async def test_an_answer_that_is_too_large(rendering, pages, monkeypatch, kind):
    monkeypatch.setattr("farmagent.render.captures.ANSWER_MAX_BYTES", 100_000)
    script = "document.body.textContent = 'x'.repeat(100_001)"
    status, reason, detail = failed(await rendering(pages.url("/page"), format=kind, script=script))
    assert (status, reason) == (413, "too-large")
    assert "100000" in detail


@pytest.mark.parametrize("kind", ["png", "pdf"])
async def test_a_picture_that_is_too_large(rendering, pages, monkeypatch, kind):
    monkeypatch.setattr("farmagent.render.captures.ANSWER_MAX_BYTES", 500)
    assert failed(await rendering(pages.url("/page"), format=kind))[:2] == (413, "too-large")


async def test_a_script_s_result_over_one_message_is_too_large(rendering, pages, monkeypatch):
    monkeypatch.setattr("farmagent.render.jobs.MESSAGE_MAX_BYTES", 1_000_000)
    script = "'x'.repeat(1_000_001)"
    assert failed(await rendering(pages.url("/page"), format="json", script=script))[:2] == (413, "too-large")


async def test_no_page_and_no_context_is_left(chrome, rendering, pages):
    async with cdp.connect(chrome) as browser:
        for policy in (OPEN, TargetPolicy.parse("127.0.0.0/8")):
            for options in ({}, {"script": "throw 1"}, {"wait_for": "#never", "timeout_s": 0.5}):
                await rendering(pages.url("/page"), policy=policy, **options)
        while True:
            found = (await browser.send("Target.getTargets"))["targetInfos"]
            if not [one for one in found if "/page" in one["url"]]:
                break
        assert (await browser.send("Target.getBrowserContexts"))["browserContextIds"] == []


async def test_a_cancelled_job_closes_its_page(chrome, rendering, pages):
    async with cdp.connect(chrome) as browser, asyncio.TaskGroup() as group:
        job = group.create_task(rendering(pages.url("/hang"), policy=OPEN))
        await asyncio.wait_for(pages.arrived.wait(), 20)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        while [
            one for one in (await browser.send("Target.getTargets"))["targetInfos"] if one["type"] == "page"
        ]:
            pass


async def test_chrome_s_end_is_the_lease_s_not_the_job_s(chrome, pages):
    with pytest.raises(cdp.CdpLost):
        await render(
            "ws://127.0.0.1:1/devtools/browser/x",
            json.dumps({"url": pages.url("/page")}).encode(),
            policy=OPEN,
        )


def test_the_limits_fit_each_other():
    assert requests.Viewport().width * 20_000 < requests.PIXELS_MAX


async def test_a_part_of_the_page_that_asks_for_a_password_is_waited_for(rendering, pages):
    """Chrome asks the person in front of it, who is not there, and tells nobody. To see it would cost Fetch's
    interception of every request (a quarter more CPU a page); domcontentloaded does not wait for it.
    """
    url = raw(pages, "<img src=/basic><b>page</b>")
    assert failed(await rendering(url, timeout_s=1.5))[:2] == (504, "not-settled")
    answer = await rendering(url, wait_until="domcontentloaded", format="png")
    assert answer.status == 200
