"""How far a page has come, from tables of events with their times."""

import pytest
from farmagent.render.progress import IDLE_S, Progress

MAIN = "F"


def navigated(url="http://a/", frame=MAIN, **more):
    return ("Page.frameNavigated", {"frame": {"id": frame, "url": url, **more}})


def asked(request="R", kind="Image", frame=MAIN, url="http://a/"):
    return (
        "Network.requestWillBeSent",
        {"requestId": request, "type": kind, "frameId": frame, "request": {"url": url}},
    )


def answered(request, status):
    return ("Network.responseReceived", {"requestId": request, "response": {"status": status}})


def done(request="R", how="Finished", **more):
    return (f"Network.loading{how}", {"requestId": request, **more})


DOM, LOAD = ("Page.domContentEventFired", {}), ("Page.loadEventFired", {})


def fold(*events, progress=None):
    """Events at 1 s, 2 s, ...; a third element is the (child's) session."""
    progress = progress or Progress(MAIN, 0.0)
    for now, (method, params, *session) in enumerate(events, start=1):
        progress.take(
            method, params, session_id=session[0] if session else "S", own=not session, now=float(now)
        )
    return progress


@pytest.mark.parametrize(
    ("events", "reached"),
    [
        ([], ""),
        ([LOAD], ""),  # about:blank's own, before the navigation
        ([navigated()], "commit"),
        ([navigated(), DOM], "commit domcontentloaded"),
        ([navigated(), DOM, LOAD], "commit domcontentloaded load"),
        ([navigated(), DOM, LOAD, navigated("http://b/")], "commit"),  # a new document starts anew
        ([navigated(), DOM, LOAD, navigated(frame="child")], "commit domcontentloaded load"),
        ([navigated(), (*LOAD, "child")], "commit"),  # another frame's load is not the page's
    ],
)
def test_how_far_the_document_has_come(events, reached):
    progress = fold(*events)
    assert [one for one in ("commit", "domcontentloaded", "load") if progress.reached(one)] == reached.split()


@pytest.mark.parametrize(
    ("events", "idle_in"),
    [
        ([], 0.0),
        ([asked()], None),
        ([asked(), done()], IDLE_S),
        ([asked(), done("other")], None),
        ([asked(), asked(), done()], IDLE_S),  # a redirect keeps its id
        ([asked(), asked("Q"), done()], None),
        ([asked("R", "EventSource")], 0.0),
        ([asked(), done(how="Failed")], IDLE_S),
        (
            [(*asked("D", "Document", "child"), "C"), done("D")],
            IDLE_S,
        ),  # begun in one session, ended in another
    ],
)
def test_when_the_network_is_idle(events, idle_in):
    assert fold(*events).idle_in_s(float(len(events) or 1)) == idle_in


def test_a_child_that_goes_takes_its_requests_along():
    progress = fold((*asked("X"), "C"), asked("Y"))
    progress.forget_session("C", 3.0)
    assert progress.in_flight() == 1
    progress.forget_session("S", 4.0)
    assert progress.idle_in_s(4.2) == pytest.approx(IDLE_S - 0.2)
    assert progress.idle_in_s(9.0) == 0.0


def test_the_main_document_s_status_and_error_only():
    progress = fold(
        asked("D", "Document", url="http://a/1"),
        asked("D", "Document", url="http://a/2"),
        asked("E", "Document", frame="child", url="http://c/"),
        answered("E", 500),
        answered("D", 404),
        done("E", "Failed", errorText="net::ERR_FRAME"),
    )
    assert (progress.status, progress.asked_url, progress.error_text) == (404, "http://a/2", "")
    fold(done("D", "Failed", errorText="net::ERR_MAIN"), progress=progress)
    assert progress.error_text == "net::ERR_MAIN"


def test_where_the_page_is():
    progress = fold(navigated("http://a/", urlFragment="#x"))
    assert progress.url == "http://a/#x"
    fold(("Page.navigatedWithinDocument", {"frameId": MAIN, "url": "http://a/#y"}), progress=progress)
    fold(("Page.navigatedWithinDocument", {"frameId": "child", "url": "http://c/"}), progress=progress)
    assert progress.url == "http://a/#y"
    fold(navigated("chrome-error://chromewebdata/", unreachableUrl="http://b/"), progress=progress)
    assert progress.unreachable_url == "http://b/"
    assert not progress.crashed
    assert fold(("Inspector.targetCrashed", {}), progress=progress).crashed


def scheduled(delay=0, frame=MAIN):
    return ("Page.frameScheduledNavigation", {"frameId": frame, "delay": delay})


def started(loader="L", frame=MAIN, kind="differentDocument"):
    return ("Page.frameStartedNavigating", {"frameId": frame, "loaderId": loader, "navigationType": kind})


CLEARED = ("Page.frameClearedScheduledNavigation", {"frameId": MAIN})
STOPPED = ("Page.frameStoppedLoading", {"frameId": MAIN})


@pytest.mark.parametrize(
    ("events", "leaving"),
    [
        ([scheduled()], True),
        ([scheduled(1)], True),
        ([scheduled(5)], False),  # a page that renews itself is a page
        ([scheduled(), CLEARED], False),  # to a part of itself
        ([scheduled(frame="child")], False),
        ([scheduled(), started(), CLEARED], True),
        ([started(), navigated()], False),
        ([scheduled(), navigated()], False),
        ([started(kind="sameDocument")], False),
        ([started(kind="historySameDocument")], False),
        ([started(frame="child")], False),
        ([started(), done("L", "Failed", canceled=True)], False),  # a download
        ([started(), done("L", "Failed", canceled=False)], True),  # Chrome's error page is to come
        ([started(), done("other", "Failed", canceled=True)], True),
        ([started(), STOPPED], False),
    ],
)
def test_whether_the_page_is_about_to_be_another(events, leaving):
    assert fold(navigated(), LOAD, *events).leaving is leaving


def test_a_document_from_the_back_forward_cache_is_whole():
    progress = fold(navigated())
    fold(
        ("Page.frameNavigated", {"type": "BackForwardCacheRestore", "frame": {"id": MAIN, "url": "u"}}),
        progress=progress,
    )
    assert progress.reached("load")
