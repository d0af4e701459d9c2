"""Which document a capture is of, and that it is read as it is, whatever the page has made of itself."""

import json
import struct
from urllib.parse import quote

import pytest
from farmagent.render import RenderAnswer, TargetPolicy

pytestmark = pytest.mark.chrome
OPEN = TargetPolicy(everything=True)


def raw(pages, markup: str) -> str:
    return pages.url(f"/raw?html={quote(markup)}")


def ok(answer: RenderAnswer) -> bytes:
    assert answer.status == 200, answer.body
    return answer.body


SAVED = {
    "windows-1251": ("Привет", '<meta charset="windows-1251">'),
    "gbk": ("简体字", '<meta http-equiv="Content-Type" content="text/html; charset=gbk">'),
    "shift_jis": ("日本語", "<META CHARSET='SHIFT_JIS'>"),
    "koi8-r": ("Привет", "<meta content='text/html;CHARSET = \"koi8-r\"' http-equiv=CONTENT-TYPE>"),
}


@pytest.mark.parametrize("charset", SAVED)
@pytest.mark.parametrize("kind", ["html", "json"])
async def test_a_saved_answer_reads_as_the_page_did(rendering, pages, charset, kind):
    words, declared = SAVED[charset]
    source = f"<!DOCTYPE html><html><head>{declared}<title>{words}</title><p>{words}".encode(charset)
    answer = await rendering(pages.url(f"/bytes?hex={source.hex()}"), format=kind)
    body = ok(answer)
    saved = json.loads(body)["html"].encode() if kind == "json" else body
    again = await rendering(pages.url(f"/bytes?hex={saved.hex()}"), format="json")
    found = json.loads(ok(again))
    assert (found["text"], found["title"]) == (words, words)


async def test_only_the_declaration_is_changed_and_not_for_the_page(rendering, pages):
    markup = (
        "<meta name=description content='charset=gbk'><meta charset=utf8 id=a><meta charset=UTF-8>"
        "<!--<meta charset=gbk>--><script>'<meta charset=gbk>'; onload = () => new MutationObserver((all) =>"
        "all.length).observe(a, {attributes: true})</script><meta http-equiv=refresh content='9;url=?charset=gbk'>"
    )
    body = ok(await rendering(raw(pages, markup))).decode()
    assert body.count("gbk") == 4
    assert '<meta charset="utf-8" id="a">' in body
    assert '<meta charset="UTF-8">' in body


CLOBBERED = (
    "<img name=title><img name=doctype><form name=documentElement></form><form name=body></form>"
    "<img name=querySelector><img name=querySelectorAll><p id=p>page</p><script>"
    "Array.prototype.reduce = Array.prototype.forEach = () => { throw new Error('mine') };"
    "Object.getOwnPropertyDescriptor = XMLSerializer = Promise = MutationObserver = setTimeout = matchMedia = null;"
    "String.prototype.toString = JSON.stringify = Element.prototype.getAttribute = () => 7;"
    "Object.defineProperty(Document.prototype, 'title', {get: () => 'mine'});"
    "Object.defineProperty(Element.prototype, 'outerHTML', {get: () => 'mine'})</script>"
)


@pytest.mark.parametrize("kind", ["html", "text", "json", "png", "pdf"])
async def test_a_page_cannot_change_what_is_read_of_it(rendering, pages, kind):
    options = {"full_page": True} if kind == "png" else {}
    body = ok(await rendering(raw(pages, CLOBBERED), format=kind, wait_for="#p", **options))
    if kind == "html":
        assert body.startswith(b"<!DOCTYPE html>\n<html>")
    if kind in ("html", "text"):
        assert b"page" in body
    if kind == "json":
        found = json.loads(body)
        assert (found["title"], found["text"]) == ("T", "page")
        assert found["html"].startswith("<!DOCTYPE html>\n<html>")


async def test_a_form_as_the_root_is_read_as_what_it_is(rendering, pages):
    names = "".join(f"<input name='{name}'/>" for name in ("outerHTML", "textContent", "innerText"))
    source = f"<form xmlns='http://www.w3.org/1999/xhtml'>{names}words</form>".encode()
    answer = await rendering(
        pages.url(f"/bytes?type=application/xhtml%2Bxml&hex={source.hex()}"), format="json"
    )
    found = json.loads(ok(answer))
    assert found["html"].startswith("<form")
    assert found["text"] == "words"


async def test_a_page_without_scripting_is_a_page(rendering, pages):
    source = b"<title>T</title>words<script>document.title = 'ran'</script>".hex()
    answer = await rendering(pages.url(f"/bytes?csp=sandbox&hex={source}"), format="json", wait_for="title")
    assert json.loads(ok(answer))["title"] == "T"


@pytest.mark.parametrize(
    "markup",
    [
        "<meta http-equiv=refresh content='0; url=/parts'>first",
        "<meta http-equiv=refresh content='1; url=/parts'>first",
        "<body onload=\"location.replace('/parts')\">first",
        "<body onload='setTimeout(() => { location.href = `/parts` }, 0)'>first",
        "<form id=f action=/parts method=post></form><body onload='f.submit()'>first",
        "<a id=a href=/parts>first</a><body onload='a.click()'>",
        "<body onload=\"location.replace('/raw?html=' + encodeURIComponent('<body onload=location=`/parts`>'))\">",
    ],
    ids=["refresh", "refresh in a second", "replace", "timer", "form", "link", "twice"],
)
@pytest.mark.parametrize("kind", ["text", "png"])
async def test_a_page_that_goes_on_at_load_is_taken_where_it_stays(rendering, pages, markup, kind):
    """The second document comes in two parts a second apart; a picture tells by its height that both are there."""
    answer = await rendering(
        raw(pages, markup), format=kind, full_page=True, viewport={"width": 100, "height": 100}
    )
    assert dict(answer.headers)["Farm-Page-Url"].startswith(pages.url("/parts"))
    if kind == "text":
        assert ok(answer).split() == [b"one", b"two"]
    else:
        assert struct.unpack(">II", ok(answer)[16:24]) == (100, 300)


@pytest.mark.parametrize("how", ["/status/204?empty", "/download", "mailto:a@b", "javascript:1", "#part"])
async def test_a_page_that_asks_for_another_and_gets_none_is_taken_as_it_stands(rendering, pages, how):
    answer = await rendering(raw(pages, f"<body onload=\"location.href='{how}'\">here"), format="text")
    assert ok(answer) == b"here"


async def test_a_page_that_renews_itself_later_is_taken_as_it_stands(rendering, pages):
    answer = await rendering(raw(pages, "<meta http-equiv=refresh content='600'>here"), format="text")
    assert ok(answer) == b"here"


async def test_an_element_is_waited_for_in_the_document_that_is_taken(rendering, pages):
    markup = "<b id=two>first</b><body onload=\"setTimeout(() => location.replace('/parts'), 0)\">"
    answer = await rendering(raw(pages, markup), wait_for="#two", wait_until="commit", format="text")
    assert b"two" in ok(answer)


HALF = "String.fromCharCode(0xd83d)"


@pytest.mark.parametrize("policy", [OPEN, None], ids=["open", "guarded"])
async def test_half_a_surrogate_pair_is_replaced_wherever_it_stands(rendering, pages, policy):
    more = {"policy": policy} if policy else {}
    markup = f"<p id=p></p><script>document.title = 't' + {HALF}; p.textContent = 'p' + {HALF}</script>"
    found = json.loads(ok(await rendering(raw(pages, markup), format="json", script=f"'r' + {HALF}", **more)))
    assert (found["title"], found["text"], found["result"]) == ("t\ufffd", "p\ufffd", "r\ufffd")
    assert "p\ufffd</p>" in ok(await rendering(raw(pages, markup), **more)).decode()


async def test_header_bytes_that_are_no_text_are_no_loss(rendering, pages):
    """In the page's own answer and in that of a picture: Chrome tells of both in events."""
    answer = await rendering(pages.url("/odd-header"), format="text", wait_until="networkidle")
    assert ok(answer) == b"odd"
    assert "odd-picture" in pages.paths("127.0.0.1")


@pytest.mark.parametrize("policy", [OPEN, None], ids=["open", "guarded"])
@pytest.mark.parametrize(
    "path",
    ["/invoice", "/invoice?attached", "/redirect?to=/invoice", "/invoice.pdf?type=application/octet-stream"],
)
async def test_a_url_that_is_a_pdf_gives_the_document_itself(rendering, pages, policy, path):
    more = {"policy": policy} if policy else {}
    answer = await rendering(pages.url(path), format="pdf", **more)
    assert b"INVOICE 4711" in ok(answer)
    assert answer.body.startswith(b"%PDF-1.4\n1 0 obj<</Type/Catalog")
    headers = dict(answer.headers)
    assert headers["Content-Type"] == "application/pdf"
    assert headers["Farm-Page-Url"] == pages.url(path.partition("to=")[2] or path)
    assert headers["Farm-Page-Status"] == "200"
    assert pages.paths("127.0.0.1").count(path.partition("to=")[2][1:] or path[1:].partition("?")[0]) == 1


@pytest.mark.parametrize("path", ["/invoice", "/invoice?attached", "/download"])
@pytest.mark.parametrize("kind", ["html", "text", "png", "json"])
async def test_for_other_formats_a_document_is_a_refusal_at_once(rendering, pages, path, kind):
    answer = await rendering(pages.url(path), format=kind)
    found = json.loads(answer.body)
    assert (answer.status, found["reason"]) == (422, "page-failed")
    assert "is a PDF" in found["detail"] or "is a download" in found["detail"]


async def test_a_page_that_goes_on_to_a_pdf_is_that_pdf(rendering, pages):
    url = raw(pages, "<body onload=\"location.replace('/invoice')\">first")
    assert b"INVOICE 4711" in ok(await rendering(url, format="pdf"))
    answer = await rendering(url, format="text")
    assert (answer.status, json.loads(answer.body)["reason"]) == (422, "page-failed")


async def test_a_page_with_a_pdf_in_a_frame_is_a_page(rendering, pages):
    assert b"INVOICE 4711" not in ok(
        await rendering(raw(pages, "<iframe src=/invoice></iframe><b>page"), format="pdf")
    )
    assert b"page" in ok(await rendering(raw(pages, "<iframe src=/invoice></iframe><b>page"), format="text"))


async def test_a_document_over_the_limit_is_too_large(rendering, pages, monkeypatch):
    monkeypatch.setattr("farmagent.render.documents.ANSWER_MAX_BYTES", 100)
    assert (await rendering(pages.url("/invoice"), format="pdf")).status == 413


@pytest.mark.parametrize("own", [False, True], ids=["asked for", "made by the page"])
async def test_a_long_url_does_not_make_the_answer_s_head_unreadable(rendering, pages, own):
    fragment = "x" * (200_000 if own else 30_000)
    script = f"location.hash = 'x'.repeat({len(fragment)})" if own else ""
    url = pages.url("/page") if own else pages.url(f"/page#{fragment}")
    answer = await rendering(url, script=script)
    assert b"Hello" in ok(answer)
    assert sum(len(name) + len(value) + 4 for name, value in answer.headers) < 8192
    headers = dict(answer.headers)
    whole = pages.url(f"/page#{fragment}")
    assert headers["Farm-Page-Url"] == whole[:4096]
    assert headers["Farm-Page-Url-Chars"] == str(len(whole))
    assert json.loads(ok(await rendering(url, script=script, format="json")))["url"] == whole


async def test_a_short_url_is_whole_and_not_marked(rendering, pages):
    headers = dict((await rendering(pages.url("/page#é"))).headers)
    assert headers["Farm-Page-Url"] == pages.url("/page#%C3%A9")
    assert "Farm-Page-Url-Chars" not in headers


@pytest.mark.parametrize(
    "markup",
    [
        "<script>document.documentElement.remove()</script>",
        "<script>onload = () => window.close()</script>",
        "<script>onload = () => print()</script>",
        "<frameset><frame src=/page></frameset>",
        "<meta http-equiv=Content-Security-Policy content=\"require-trusted-types-for 'script'\">",
        "<script>onload = () => { document.open(); document.write('new') }</script>",
    ],
    ids=["no root", "closes itself", "prints", "frameset", "trusted types", "written anew"],
)
@pytest.mark.parametrize("kind", ["json", "png", "pdf"])
async def test_an_odd_page_is_a_page(rendering, pages, markup, kind):
    ok(await rendering(raw(pages, markup), format=kind, full_page=True))


@pytest.mark.parametrize(
    "script",
    [
        "let a = 1; for (let i = 0; i < 900; i++) a = [a]; a",
        "Symbol('x')",
        "window",
        "new Proxy({}, {ownKeys() { throw 1 }})",
        "throw null",
        "throw {get description() { return 1 }}",
        "Promise.reject(Symbol('x'))",
    ],
)
async def test_a_script_s_value_that_cannot_be_told_is_a_failed_script(rendering, pages, script):
    answer = await rendering(pages.url("/page"), script=script, format="json")
    assert (answer.status, json.loads(answer.body)["reason"]) == (422, "script-failed")


@pytest.mark.parametrize(
    "markup", ["<script>onload = () => location.reload()</script>", "<meta http-equiv=refresh content=0>"]
)
async def test_a_page_that_never_stays_is_given_up_in_time(rendering, pages, markup):
    answer = await rendering(raw(pages, markup), timeout_s=2)
    assert (answer.status, json.loads(answer.body)["reason"]) == (504, "not-settled")
