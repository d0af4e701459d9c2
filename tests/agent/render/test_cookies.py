"""Cookies and headers as other tools write them, and that none is dropped or changed in silence."""

import json
from typing import Any

import pytest
from farmagent.render.answers import RenderError
from farmagent.render.requests import parse
from farmagent.render.targets import TargetPolicy
from playwright.async_api import async_playwright

POLICY = TargetPolicy()
chrome_only = pytest.mark.chrome


def job(**fields) -> bytes:
    return json.dumps({"url": "http://example.com/", **fields}).encode()


@pytest.mark.parametrize(
    ("cookie", "words"),
    [
        ({"value": "é"}, "the value of the cookie a"),
        ({"name": "é"}, "the name of the cookie é"),
        ({"domain": "exa mple.com"}, "exa mple.com is no domain, of the cookie a"),
        ({"domain": "a..b"}, "a..b is no domain"),
        ({"path": "/ü"}, "the path of the cookie a"),
        ({"partitionKeys": "x"}, "unknown field `partitionKeys`"),
        ({"partitionKey": {"topLevel": "x"}}, "unknown field `topLevel`"),
        ({"hostOnly": True}, "unknown field `hostOnly`"),
    ],
)
def test_a_cookie_that_is_wrong_by_itself_is_named(cookie, words):
    with pytest.raises(RenderError, match=r"\$\.cookies\[1\]") as caught:
        parse(job(cookies=[{"name": "x", "value": "y"}, {"name": "a", "value": "b", **cookie}]), POLICY)
    assert words in caught.value.detail


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        *(({name: "x"}, f"{name} is Chrome's own") for name in (
            "Proxy-Authorization", "Cookie2", "Set-Cookie", "proxy-connection", "PROXY-X", "Accept", "TE",
            "Sec-Fetch-Site", "Keep-Alive",
        )),
        ({"X-A": "é"}, "the value of X-A"),
        ({"X-A": "日本"}, "the value of X-A"),
        ({"X-A": "1", "x-a": "2"}, "x-a stands there twice"),
        ({"Referer": "somewhere"}, "Referer"),
    ],
)  # fmt: skip
def test_a_header_that_chrome_would_drop_or_change_is_named(headers, words):
    with pytest.raises(RenderError, match=r"\$\.headers") as caught:
        parse(job(headers=headers), POLICY)
    assert words in caught.value.detail


def test_a_user_agent_outside_ascii_is_named():
    with pytest.raises(RenderError, match=r"\$\.user_agent"):
        parse(job(user_agent="é"), POLICY)


@chrome_only
async def test_every_header_that_is_taken_arrives(rendering, pages):
    given = {
        "Accept-Language": "de", "Authorization": "Basic eA==", "Cache-Control": "no-store", "Cookie": "a=b",
        "DNT": "1", "Origin": "http://e.x", "Referer": "http://e.x/", "Sec-GPC": "1", "Via": "x",
        "X-Forwarded-For": "1.2.3.4", "X-Tab": "a\tb", "x-lower": "1", "X-Empty": "",
    }  # fmt: skip
    assert (await rendering(pages.url("/echo"), headers=given)).status == 200
    (request,) = (one for one in pages.requests if one.path == "/echo")
    assert {name: request.headers.get(name) for name in given} == given


def refused(answer) -> str:
    found = json.loads(answer.body)
    assert (answer.status, found["reason"]) == (400, "bad-request"), found
    return found["detail"]


@chrome_only
@pytest.mark.parametrize("policy", [TargetPolicy(everything=True), None], ids=["open", "guarded"])
@pytest.mark.parametrize(
    ("cookie", "words"),
    [
        ({"domain": "com"}, "com is a public suffix"),
        ({"domain": ".com"}, "public suffix"),
        ({"domain": "co.uk"}, "co.uk is a public suffix"),
        ({"domain": "github.io"}, "github.io is a public suffix"),
        ({"sameSite": "None"}, "needs secure"),
        ({"value": "a;b"}, "Invalid cookie fields"),
        ({"value": "a\tb"}, "Invalid cookie fields"),
        ({"value": "x" * 5000}, "Invalid cookie fields"),
        ({"name": "__Secure-a", "domain": "example.com"}, "Invalid cookie fields"),
        ({"path": "no-path"}, "Invalid cookie fields"),
    ],
)
async def test_a_cookie_that_chrome_drops_is_named(rendering, pages, policy, cookie, words):
    more = {"policy": policy} if policy else {}
    cookies = [{"name": "good", "value": "1"}, {"name": "bad", "value": "2", **cookie}]
    detail = refused(await rendering(pages.url("/echo"), cookies=cookies, **more))
    assert words in detail
    assert detail.startswith(f"Chrome does not take the cookie {cookies[1]['name']}: ")
    assert detail.endswith("$.cookies[1]`")
    assert pages.seen == []


@chrome_only
async def test_cookies_for_other_hosts_are_good_and_leave_no_trace(rendering, pages):
    cookies = [
        {"name": "a", "value": "1", "domain": "example.com"},
        {"name": "a", "value": "2", "domain": ".Example.com"},
        {"name": "a", "value": "3", "domain": "münchen.de"},
        {"name": "__Host-a", "value": "4", "domain": "example.com", "secure": True, "path": "/"},
        {"name": "a", "value": "5", "domain": "a.test"},
        {"name": "twice", "value": "6"},
        {"name": "twice", "value": "7"},
        {"name": "old", "value": "8", "expires": 1},
    ]
    answer = await rendering(pages.url("/echo", "a.test"), cookies=cookies, format="text")
    assert answer.status == 200, answer.body
    (request,) = (one for one in pages.requests if one.path == "/echo")
    assert sorted(request.headers["Cookie"].split("; ")) == ["a=5", "twice=7"]


async def exported(chrome: str, url: str) -> dict[str, list[dict[str, Any]]]:
    """What three tools hand out after a login in a context of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chrome)
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(url)
        session = await context.new_cdp_session(page)
        found = {
            "playwright": await context.cookies(),
            "storage_state": (await context.storage_state())["cookies"],
            "cdp": (await session.send("Network.getAllCookies"))["cookies"],
        }
        await context.close()
        return found


@chrome_only
async def test_what_other_tools_export_logs_in(chrome, rendering, pages):
    """Of the three cookies one is partitioned: its key is a text in one export and an object in another."""
    found = await exported(chrome, pages.url("/login"))
    keys = [
        [one.get("partitionKey") for one in cookies if one["name"] == "part"] for cookies in found.values()
    ]
    assert {type(key) for (key,) in keys} == {str, dict}
    for name, cookies in found.items():
        assert len(cookies) == 3, name
        answer = await rendering(pages.url("/echo"), cookies=cookies)
        assert answer.status == 200, (name, answer.body)
        request = pages.requests[-1] if pages.requests[-1].path == "/echo" else pages.requests[-2]
        sent = sorted(request.headers["Cookie"].split("; "))
        assert sent == ["part=2", "session=1", "stays=3"], name


@pytest.mark.parametrize(
    "key",
    [
        {"partitionKey": {"topLevelSite": "https://top.example", "hasCrossSiteAncestor": True}},
        {"partitionKey": {"sourceOrigin": "https://top.example", "hasCrossSiteAncestor": True}},
        {"partitionKey": "https://top.example", "_crHasCrossSiteAncestor": True},
    ],
    ids=["cdp", "puppeteer", "playwright"],
)
def test_a_partition_is_passed_on_and_what_chrome_sets_itself_is_not(key):
    exported = {
        "name": "a", "value": "b", "domain": "example.com", "path": "/", "secure": True, "sameSite": "None",
        "expires": -1, "httpOnly": False, "size": 2, "session": True, "priority": "Medium",
        "sourceScheme": "Secure", "sourcePort": 443, "sameParty": False, **key,
    }  # fmt: skip
    (cookie,) = parse(job(cookies=[exported]), POLICY).cookies
    assert cookie.as_params("http://x/") == {
        "name": "a", "value": "b", "domain": "example.com", "path": "/", "secure": True, "sameSite": "None",
        "partitionKey": {"topLevelSite": "https://top.example", "hasCrossSiteAncestor": True},
    }  # fmt: skip


def test_a_cookie_that_no_page_can_get_is_left_out():
    left = [{"expires": 1}, {"partitionKeyOpaque": True}, {"expires": -1}, {"expires": 4e9}]
    cookies = parse(job(cookies=[{"name": "a", "value": "b", **one} for one in left]), POLICY).cookies
    assert [cookie.gone for cookie in cookies] == [True, True, False, False]
