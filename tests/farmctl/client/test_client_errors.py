"""Answers of the door, and Playwright's words for them, to the errors a caller meets."""

import json

import pytest
from farmwire.reasons import ANSWERS, Refusal

from farmctl.client import LaunchOptions
from farmctl.client.endpoints import LeaseOptions, browser_url, http_url
from farmctl.client.errors import DoorUnreachable, JobLost, PageFailed, Refused, from_answer, from_playwright
from farmctl.errors import UsageError


@pytest.mark.parametrize("refusal", list(Refusal))
def test_every_refusal_of_the_door_is_known(refusal):
    answer = ANSWERS[refusal]
    body = json.dumps({"reason": refusal, "detail": "d", "retry_after_s": answer.retry_after_s}).encode()
    error = from_answer(answer.status, body)
    if refusal is Refusal.POD_LOST:
        assert isinstance(error, JobLost)
    else:
        assert isinstance(error, Refused)
        assert (error.reason, error.retry_after_s) == (refusal, answer.retry_after_s)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (422, b'{"reason":"navigation","detail":"net::ERR_NAME_NOT_RESOLVED"}', PageFailed),
        (504, b'{"reason":"page-timeout"}', PageFailed),
        (403, b'{"reason":"target"}', PageFailed),
        (413, b'{"reason":"result-too-large"}', PageFailed),
        (502, b"<html>a gateway between</html>", JobLost),
        (503, b"not json", Refused),
        (503, b'["a list"]', Refused),
        (500, b"\xff\xfe", PageFailed),
    ],
)
def test_pages_and_gateways(status, body, kind):
    assert type(from_answer(status, body)) is kind


def test_retry_after_comes_from_the_header_when_the_body_has_none():
    error = from_answer(503, b"busy", "7")
    assert isinstance(error, Refused)
    assert error.retry_after_s == 7


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (
            (
                "BrowserType.connect_over_cdp: WebSocket error: ws://d:1/devtools/browser/farm 503 Service Unavailable\n"
                '{"reason":"hold-timeout","detail":"","retry_after_s":5}\nCall log:\n  - <ws connecting> ws://d:1/'
            ),
            Refused,
            "hold-timeout",
        ),
        (
            (
                "BrowserType.connect_over_cdp: WebSocket error: ws://d/x 502 Bad Gateway\n"
                '{"reason":"pod-lost"}\nCall log:'
            ),
            JobLost,
            "pod-lost",
        ),
        ("WebSocket error: ws://d/x 401 Unauthorized\nCall log:", Refused, "unknown"),
        ("WebSocket error: connect ECONNREFUSED 127.0.0.1:9222", DoorUnreachable, None),
        ("WebSocket error: socket hang up", JobLost, "closed"),
        ("Timeout 30000ms exceeded.", None, None),
    ],
)
def test_playwright_messages(message, kind, reason):
    error = from_playwright("http://d", message)
    assert type(error) is (kind or type(None))
    if reason:
        assert error.reason == reason


def test_the_token_never_stands_in_a_url():
    lease_options = LeaseOptions(token="secret", pool="big", hold_s=0, max_s=1.5, label="a b&c")
    url = browser_url("http://door:9222/", lease_options)
    assert url == "ws://door:9222/devtools/browser/farm?pool=big&hold=0&max=1.5&label=a+b%26c"
    launch = LaunchOptions(lang="de-DE,de", window="800x600", args=("--hide-scrollbars", "--force-dark-mode"))
    url = browser_url("door:9222", LeaseOptions(launch=launch))
    assert url.partition("?")[2] == "lang=de-DE%2Cde&window=800x600&args=--hide-scrollbars+--force-dark-mode"
    assert lease_options.headers() == {"Authorization": "Bearer secret"}
    assert http_url("wss://door", "/render", LeaseOptions()) == "https://door/render"
    assert http_url("door:9222", "/leases") == "http://door:9222/leases"


def test_a_door_that_is_no_address_is_a_usage_error():
    with pytest.raises(UsageError):
        http_url("ftp://door", "/render")
