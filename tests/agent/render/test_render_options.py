"""Each option of /render on a real Chromium, behind the gate and without it."""

import json
import struct
from urllib.parse import quote

import pytest
from farmagent.render import RenderAnswer, TargetPolicy

pytestmark = pytest.mark.chrome
OPEN = TargetPolicy(everything=True)


def header(answer: RenderAnswer, name: str) -> str:
    return dict(answer.headers).get(name, "")


def raw(pages, markup: str, host: str = "127.0.0.1") -> str:
    return pages.url(f"/raw?html={quote(markup)}", host)


def size_of_png(body: bytes) -> tuple[int, int]:
    assert body.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", body[16:24])


def ok(answer: RenderAnswer) -> bytes:
    assert answer.status == 200, answer.body
    return answer.body


@pytest.mark.parametrize("policy", [OPEN, None], ids=["open", "guarded"])
async def test_html_is_the_document_as_it_stands(rendering, pages, policy):
    more = {"policy": policy} if policy else {}
    answer = await rendering(raw(pages, "<p id=p></p><script>p.textContent='from script'</script>"), **more)
    body = ok(answer).decode()
    assert body.startswith("<!DOCTYPE html>")
    assert '<p id="p">from script</p>' in body
    assert header(answer, "Content-Type") == "text/html; charset=utf-8"
    assert header(answer, "Farm-Page-Status") == "200"
    assert header(answer, "Farm-Page-Url").startswith(pages.url("/raw"))


async def test_text_is_what_is_seen(rendering, pages):
    answer = await rendering(pages.url("/page"), format="text")
    assert ok(answer).decode() == "Hello\n\ntext é"
    assert header(answer, "Content-Type") == "text/plain; charset=utf-8"


async def test_json_says_all_at_once(rendering, pages):
    answer = await rendering(
        pages.url("/redirect?to=/page"), format="json", script="Promise.resolve({a: [1, document.title]})"
    )
    found = json.loads(ok(answer))
    timings = found.pop("timings")
    assert found == {
        "url": pages.url("/page"),
        "status": 200,
        "title": "T",
        "html": found["html"],
        "text": "Hello\n\ntext é",
        "result": {"a": [1, "T"]},
    }
    assert "<h1" in found["html"]
    assert list(timings) == ["opened_s", "committed_s", "settled_s", "script_s"]
    assert list(timings.values()) == sorted(timings.values())


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("1 + 1", 2),
        ("undefined", None),
        ("NaN", "NaN"),
        ("12n", "12n"),
        ("(async () => 'later')()", "later"),
        ("document.body.innerHTML = ''; null", None),
        ("location.href = '/page'; new Promise(() => {})", None),
    ],
)
async def test_a_script_s_value(rendering, pages, script, result):
    answer = await rendering(pages.url("/status/200"), format="json", script=script)
    assert json.loads(ok(answer))["result"] == result


async def test_a_script_that_goes_to_another_page_is_followed(rendering, pages):
    answer = await rendering(
        pages.url("/status/200"), script="location.href = '/page'; new Promise(() => {})", format="json"
    )
    found = json.loads(ok(answer))
    assert (found["url"], found["title"]) == (pages.url("/page"), "T")


@pytest.mark.parametrize("scale", [1, 2])
async def test_a_png_is_as_large_as_the_viewport(rendering, pages, scale):
    viewport = {"width": 640, "height": 400, "scale": scale}
    answer = await rendering(raw(pages, "<p style='height:3000px'>"), format="png", viewport=viewport)
    assert size_of_png(ok(answer)) == (640 * scale, 400 * scale)
    assert header(answer, "Content-Type") == "image/png"


async def test_the_viewport_is_what_the_page_sees(rendering, pages):
    answer = await rendering(
        pages.url("/page"),
        format="json",
        viewport={"width": 333, "height": 222, "scale": 1.5},
        script="[innerWidth, innerHeight, devicePixelRatio]",
    )
    assert json.loads(ok(answer))["result"] == [333, 222, 1.5]


async def test_a_full_page_is_as_high_as_the_page(rendering, pages):
    markup = "<body style='margin:0'><p style='margin:0;height:2500px'>"
    answer = await rendering(raw(pages, markup), format="png", full_page=True, viewport={"width": 300})
    assert size_of_png(ok(answer)) == (300, 2500)


async def test_jpeg(rendering, pages):
    answer = await rendering(pages.url("/page"), format="jpeg")
    assert ok(answer).startswith(b"\xff\xd8\xff")
    assert header(answer, "Content-Type") == "image/jpeg"


async def test_pdf(rendering, pages):
    answer = await rendering(pages.url("/page"), format="pdf")
    assert ok(answer).startswith(b"%PDF")
    assert b"%%EOF" in answer.body[-16:]
    assert header(answer, "Content-Type") == "application/pdf"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"], ids=["same-site", "other-site"])
async def test_headers_and_user_agent_reach_every_frame(rendering, pages, host):
    """Another site's frame is another process: it must not give the page away by other headers."""
    markup = f"<iframe src='{pages.url('/echo', host)}'></iframe>"
    ok(await rendering(raw(pages, markup), headers={"X-Farm-Test": "yes"}, user_agent="Agent/1.0"))
    for request in pages.requests:
        if request.path in ("/raw", "/echo"):
            assert (request.headers.get("X-Farm-Test"), request.headers["User-Agent"]) == ("yes", "Agent/1.0")
    assert "/echo" in [request.path for request in pages.requests]


async def test_cookies_are_sent_and_do_not_stay(rendering, pages):
    cookies = [
        {"name": "plain", "value": "1"},
        {"name": "elsewhere", "value": "2", "domain": "127.0.0.2"},
        {"name": "secret", "value": "3", "httpOnly": True, "path": "/echo", "expires": 4102444800},
    ]
    body = ok(await rendering(pages.url("/echo"), cookies=cookies)).decode()
    assert "plain=1" in body
    assert "secret=3" in body
    assert "elsewhere" not in body
    assert "plain=1" not in ok(await rendering(pages.url("/echo"))).decode()


async def test_a_cookie_that_chrome_does_not_take_is_a_bad_request(rendering, pages):
    answer = await rendering(pages.url("/echo"), cookies=[{"name": "a", "value": "b", "url": "nonsense"}])
    assert (answer.status, json.loads(answer.body)["reason"]) == (400, "bad-request")


@pytest.mark.parametrize("policy", [OPEN, None], ids=["open", "guarded"])
async def test_blocked_types_are_not_asked_for(rendering, pages, policy):
    more = {"policy": policy} if policy else {}
    other = raw(pages, "<img src=/image>", "127.0.0.2")
    markup = f"<img src=/image><iframe src='{other}'></iframe><script src=/status/200></script>"
    answer = await rendering(raw(pages, markup), block=["image", "script"], **more)
    assert "<img" in ok(answer).decode()
    assert pages.paths("127.0.0.2") == ["raw"]
    assert "image" not in pages.paths("127.0.0.1")
    assert "status/200" not in pages.paths("127.0.0.1")


async def test_nothing_is_blocked_unasked(rendering, pages):
    ok(await rendering(raw(pages, "<img src=/image>")))
    assert "image" in pages.paths("127.0.0.1")


async def test_commit_does_not_wait_for_the_rest(rendering, pages):
    markup = "<h1>early</h1><img src=/hang>"
    ok(await rendering(raw(pages, markup), wait_until="commit"))  # whatever has been parsed by then
    assert b"<h1>early" in ok(await rendering(raw(pages, markup), wait_until="domcontentloaded"))


async def test_networkidle_waits_for_what_scripts_ask_for(rendering, pages):
    markup = (
        "<p id=p></p><script>onload = () => fetch('/late?s=0.3').then(() => fetch('/late?s=0.3'))"
        ".then(() => { p.textContent = 'both' })</script>"
    )
    assert b">both<" not in ok(await rendering(raw(pages, markup)))
    assert b">both<" in ok(await rendering(raw(pages, markup), wait_until="networkidle"))


async def test_networkidle_counts_the_frames_of_other_sites(rendering, pages):
    script = "<script>onload = () => fetch('/late?s=0.8').then(() => parent.postMessage(1, '*'))</script>"
    frame = raw(pages, script, "127.0.0.2")
    markup = f"<p id=p></p><script>onmessage = () => p.textContent = 'told'</script><iframe src='{frame}'></iframe>"
    assert b">told<" in ok(await rendering(raw(pages, markup), wait_until="networkidle"))


async def test_networkidle_does_not_wait_for_an_open_websocket(rendering, pages):
    markup = "<script>new WebSocket(location.origin.replace('http', 'ws') + '/ws')</script>"
    ok(await rendering(raw(pages, markup), wait_until="networkidle"))
    assert pages.sockets == 1


async def test_wait_for_an_element_that_comes_late(rendering, pages):
    markup = (
        "<script>setTimeout(() => document.body.innerHTML = '<b class=\"it\\'s x\">here</b>', 300)</script>"
    )
    answer = await rendering(raw(pages, markup), wait_for="b.it\\'s.x")
    assert b">here<" in ok(answer)


async def test_wait_for_goes_on_over_a_navigation(rendering, pages):
    markup = "<script>setTimeout(() => location.href = '/page', 100)</script>"
    assert b"Hello" in ok(await rendering(raw(pages, markup), wait_for="#h"))


async def test_dialogs_do_not_block(rendering, pages):
    markup = "<script>alert(1); document.title = 'asked ' + confirm('?') + prompt('!')</script>"
    assert json.loads(ok(await rendering(raw(pages, markup), format="json")))["title"] == "asked falsenull"


async def test_a_popup_and_a_beforeunload_change_nothing(rendering, pages):
    markup = "<script>window.open('/page'); onbeforeunload = () => 'stay'</script><b>page</b>"
    answer = await rendering(raw(pages, markup), script="location.href='/page'; 1")
    assert answer.status == 200


async def test_frames_are_loaded(rendering, pages):
    other = pages.url("/page", "127.0.0.2")
    ok(await rendering(raw(pages, f"<iframe src=/page></iframe><iframe src='{other}'></iframe>")))
    assert "page" in pages.paths("127.0.0.1")
    assert "page" in pages.paths("127.0.0.2")


async def test_a_page_that_is_not_html(rendering, pages):
    assert b"<svg" in ok(await rendering(pages.url("/image")))


async def test_an_error_page_with_content_is_a_page(rendering, pages):
    answer = await rendering(pages.url("/status/404"), format="text")
    assert (ok(answer), header(answer, "Farm-Page-Status")) == (b"status page", "404")
