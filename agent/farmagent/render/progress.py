"""How far a page has come, folded from Chrome's events. Pure: events and the time in, answers out.

The rule: what counts is the main frame's newest document, and a page that is about to leave for another has not
come to rest. A new navigation, whoever began it, starts the waiting anew; only requests in flight are counted over
all frames and workers.
"""

from collections.abc import Mapping
from typing import Any

# A refresh after this long or less is a way to go on; a longer one is a page that shows itself and renews.
REFRESH_MAX_S = 1.0
IDLE_S = 0.5  # no request in flight for this long is "networkidle", as in Playwright and Puppeteer
# These never finish while the page lives, so they say nothing about settling.
_ENDLESS = frozenset({"EventSource", "WebSocket"})


_GOING = frozenset(
    {
        "Page.frameScheduledNavigation", "Page.frameClearedScheduledNavigation",
        "Page.frameStartedNavigating", "Page.frameStoppedLoading",
    }
)  # fmt: skip


class Progress:
    """One page's progress. Feed it every event of the page's session and of its children's sessions."""

    def __init__(self, frame_id: str, now: float) -> None:
        self._frame_id = frame_id
        # By request, because a frame's document starts in its parent's session and ends in its own.
        self._in_flight: dict[str, str] = {}
        self._document_id = ""  # request of the newest document; Chrome's loader id
        self._idle_since = now
        self._scheduled = False  # the page means to go on, and has not begun to
        self._going = ""  # loader id of the document that it is going to
        self.documents = 0  # committed so far in the main frame
        self.committed = False
        self.dom_ready = False
        self.loaded = False
        self.crashed = False
        self.url = ""  # of the committed document
        self.asked_url = ""  # of the document being asked for, redirects followed
        self.unreachable_url = ""  # set while Chrome shows its error page
        self.error_text = ""  # the last failed document's net::ERR_ word
        self.status = 0  # HTTP status of the newest document
        self.mime = ""  # and its type
        self._shown = (0, "")  # both, of the committed one

    def take(self, method: str, params: Mapping[str, Any], *, session_id: str, own: bool, now: float) -> None:
        """Fold one event in. ``own``: it came from the page's own session, not from a child's."""
        if method.startswith("Network."):
            self._take_network(method, params, session_id, own, now)
        elif own:
            self._take_page(method, params)

    @property
    def leaving(self) -> bool:
        """Whether another document is about to take this one's place (a link, form, script or refresh)."""
        return self._scheduled or bool(self._going)

    def reached(self, wait_until: str) -> bool:
        """Whether the document has come as far as ``wait_until`` asks (networkidle: its loading part)."""
        if wait_until == "commit":
            return self.committed
        return self.dom_ready if wait_until == "domcontentloaded" else self.loaded

    def idle_in_s(self, now: float) -> float | None:
        """Seconds until the network counts as idle if nothing happens; None while requests are in flight."""
        if self._in_flight:
            return None
        return max(0.0, self._idle_since + IDLE_S - now)

    def in_flight(self) -> int:
        return len(self._in_flight)

    def forget_session(self, session_id: str, now: float) -> None:
        """A child (frame or worker) is gone, and its requests with it."""
        self._in_flight = {key: owner for key, owner in self._in_flight.items() if owner != session_id}
        self._idle_since = now

    def _take_network(
        self, method: str, params: Mapping[str, Any], session_id: str, own: bool, now: float
    ) -> None:
        request_id = str(params.get("requestId", ""))
        if method == "Network.requestWillBeSent":
            if params.get("type") not in _ENDLESS:
                self._in_flight[request_id] = session_id
            if own and params.get("type") == "Document" and params.get("frameId") == self._frame_id:
                self._document_id = request_id
                self.asked_url = str(params["request"]["url"])
        elif method == "Network.responseReceived" and request_id == self._document_id:
            self.status = int(params["response"]["status"])
            self.mime = str(params["response"].get("mimeType", ""))
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            if self._in_flight.pop(request_id, None) is not None:
                self._idle_since = now
            if method == "Network.loadingFailed" and request_id == self._document_id:
                self.error_text = str(params.get("errorText", ""))
            if method == "Network.loadingFailed" and request_id == self._going and params.get("canceled"):
                # A download, a 204, window.stop(): the page stays.
                self._going = ""
                self.status, self.mime = self._shown

    def _take_page(self, method: str, params: Mapping[str, Any]) -> None:
        if method in _GOING:
            if params["frameId"] == self._frame_id:
                self._take_going(method, params)
        elif method == "Page.frameNavigated" and params["frame"]["id"] == self._frame_id:
            frame = params["frame"]
            self.documents += 1
            # From the back/forward cache a document comes whole, and says no more.
            restored = params.get("type") == "BackForwardCacheRestore"
            self.committed, self.dom_ready, self.loaded = True, restored, restored
            self._scheduled, self._going = False, ""
            self._shown = (self.status, self.mime)
            self.url = str(frame["url"]) + str(frame.get("urlFragment", ""))
            self.unreachable_url = str(frame.get("unreachableUrl", ""))
        elif method == "Page.navigatedWithinDocument" and params["frameId"] == self._frame_id:
            self.url = str(params["url"])
        elif method == "Page.domContentEventFired":
            self.dom_ready = self.committed
        elif method == "Page.loadEventFired":
            self.loaded = self.committed
        elif method == "Inspector.targetCrashed":
            self.crashed = True

    def _take_going(self, method: str, params: Mapping[str, Any]) -> None:
        """Chrome says cleared after started, so that no moment lies between the two."""
        if method == "Page.frameScheduledNavigation":
            self._scheduled = float(params["delay"]) <= REFRESH_MAX_S
        elif method == "Page.frameClearedScheduledNavigation":
            self._scheduled = False
        elif method == "Page.frameStoppedLoading":
            self._going = ""
        elif not str(params["navigationType"]).lower().endswith("samedocument"):
            self._going = str(params["loaderId"])
