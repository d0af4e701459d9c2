"""The render request: every field's limits, and messages that name the field."""

import contextlib
import json

import pytest
from farmagent.render.answers import Reason, RenderError, refusal
from farmagent.render.requests import RenderRequest, parse
from farmagent.render.targets import TargetPolicy
from hypothesis import given
from hypothesis import strategies as st

POLICY = TargetPolicy()


def job(**fields) -> bytes:
    return json.dumps({"url": "http://example.com/", **fields}).encode()


def test_a_url_is_enough():
    request = parse(job(), POLICY)
    assert request == RenderRequest(url="http://example.com/")
    assert (request.format, request.wait_until, request.timeout_s, request.full_page) == (
        "html",
        "load",
        30,
        False,
    )
    assert (request.viewport.width, request.viewport.height, request.viewport.scale) == (1280, 720, 1)


def test_every_field():
    fields = {
        "wait_until": "networkidle",
        "wait_for": "#x",
        "timeout_s": 1.5,
        "format": "png",
        "full_page": True,
        "viewport": {"width": 100, "height": 50, "scale": 2},
        "headers": {"X-A": "b", "Accept-Language": "de"},
        "cookies": [{"name": "a", "value": "b", "domain": "example.com", "sameSite": "Lax", "expires": 1}],
        "user_agent": "U",
        "block": ["image", "xhr"],
        "script": "1",
    }
    request = parse(job(**fields), POLICY)
    assert request.viewport.scale == 2
    assert request.cookies[0].sameSite == "Lax"
    assert request.block == ("image", "xhr")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nonsense": 1}, "unknown field `nonsense`"),
        ({"url": 5}, "$.url"),
        ({"url": ""}, "$.url"),
        ({"url": "example.com"}, "no scheme"),
        ({"format": "gif"}, "$.format"),
        ({"wait_until": "idle"}, "$.wait_until"),
        ({"timeout_s": 0}, "$.timeout_s"),
        ({"timeout_s": -1}, "$.timeout_s"),
        ({"timeout_s": 601}, "$.timeout_s"),
        ({"timeout_s": "30"}, "$.timeout_s"),
        ({"full_page": "yes"}, "$.full_page"),
        ({"viewport": {"width": 0}}, "$.viewport.width"),
        ({"viewport": {"width": 10.5}}, "$.viewport.width"),
        ({"viewport": {"width": 8193}}, "$.viewport.width"),
        ({"viewport": {"scale": 5}}, "$.viewport.scale"),
        ({"viewport": {"depth": 1}}, "unknown field `depth`"),
        ({"viewport": {"width": 8192, "height": 8192}}, "px"),
        ({"headers": {"a b": "c"}}, "no header name"),
        ({"headers": {"Host": "x"}}, "Chrome's own"),
        ({"headers": {"content-LENGTH": "1"}}, "Chrome's own"),
        ({"headers": {"X": "a\r\nY: b"}}, "control characters"),
        ({"headers": {"X": 1}}, "$.headers"),
        ({"user_agent": "a\nb"}, "$.user_agent"),
        ({"cookies": [{"name": "", "value": ""}]}, "$.cookies[0].name"),
        ({"cookies": [{"name": "a"}]}, "missing required field `value`"),
        ({"cookies": [{"name": "a", "value": "b", "sameSite": "lax"}]}, "sameSite"),
        ({"cookies": [{"name": "a", "value": "b", "http_only": True}]}, "unknown field `http_only`"),
        ({"cookies": [{"name": "a", "value": "b"}] * 301}, "$.cookies"),
        ({"block": ["document"]}, "$.block"),
        ({"block": "image"}, "$.block"),
        ({"script": ["1"]}, "$.script"),
        ({"wait_for": 500}, "$.wait_for"),
    ],
)
def test_what_is_wrong_is_named(fields, words):
    with pytest.raises(RenderError) as caught:
        parse(job(**fields), POLICY)
    assert caught.value.reason == Reason.BAD_REQUEST
    assert words in caught.value.detail


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"url": "\xff"}', b"{}", b"\x00" * 10])
def test_a_body_that_is_no_request(body):
    with pytest.raises(RenderError) as caught:
        parse(body, POLICY)
    assert caught.value.reason == Reason.BAD_REQUEST


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_request(body):
    with contextlib.suppress(RenderError):
        assert parse(body, POLICY).url


def test_a_refused_target_is_no_bad_request():
    with pytest.raises(RenderError) as caught:
        parse(job(url="http://10.0.0.1/"), POLICY)
    assert caught.value.reason == Reason.REFUSED_TARGET


DOCUMENTED = {
    "bad-request": 400,
    "refused-target": 403,
    "too-large": 413,
    "page-failed": 422,
    "page-crashed": 422,
    "script-failed": 422,
    "not-settled": 504,
}


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_its_documented_status_and_a_json_body(reason):
    answer = refusal(RenderError(reason, "why"))
    assert answer.status == DOCUMENTED[reason]
    assert json.loads(answer.body) == {"reason": reason.value, "detail": "why"}
