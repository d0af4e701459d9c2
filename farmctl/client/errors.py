"""What a caller of the farm can meet, as one small tree: told apart by what the caller may do next.

A lost job may be run again, a refusal may be asked again when it says so, and a page's own failure is an
answer: running it again is the caller's own decision and never this package's.
"""

import json
import re
from typing import Any

from farmwire.reasons import Refusal

from farmctl.errors import FarmctlError


class FarmError(FarmctlError):
    """Root of all that ``farmctl.client`` raises."""


class JobLost(FarmError):
    """The pod, its browser or the proxy died while the job ran; how far it came is unknown."""

    def __init__(self, message: str, *, reason: str = "pod-lost") -> None:
        super().__init__(message, hint="run the job again if it is idempotent: farmctl.client.run_job")
        self.reason = reason


class Refused(FarmError):
    """The door gave no lease. ``reason`` is one of farmwire's refusals; nothing of the job has run.

    ``retry_after_s`` is the door's own advice in seconds, None where asking again does not help.
    """

    def __init__(
        self, status: int, reason: str, detail: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"refused: {reason} ({status})" + (f": {detail}" if detail else ""))
        self.status = status
        self.reason = reason
        self.detail = detail
        self.retry_after_s = retry_after_s


class PageFailed(FarmError):
    """The farm did its part and the page failed (crash, navigation error, never settled, refused target)."""

    def __init__(self, status: int, reason: str, detail: str = "") -> None:
        super().__init__(f"page failed: {reason} ({status})" + (f": {detail}" if detail else ""))
        self.status = status
        self.reason = reason
        self.detail = detail


class DoorUnreachable(FarmError):
    """No connection to the door, so nothing of the job was sent."""

    exit_code = 3

    def __init__(self, door: str, cause: object) -> None:
        super().__init__(f"no farm answers at {door}: {cause}", hint="farmctl status, or farmctl up")
        self.door = door


def from_answer(status: int, body: bytes, retry_after: str | None = None) -> FarmError:
    """Map an HTTP answer of the door or the agent that is no success to the error a caller meets."""
    told = _object(body)
    reason = str(told.get("reason") or "unknown")
    detail = str(told.get("detail") or "")
    if reason == Refusal.POD_LOST or (status == 502 and reason == "unknown"):
        return JobLost(detail or "the pod was lost while the job ran", reason=Refusal.POD_LOST)
    if reason in set(Refusal) or status in {400, 401, 429, 503}:
        return Refused(status, reason, detail, _seconds(told.get("retry_after_s"), retry_after))
    return PageFailed(status, reason, detail or body[:200].decode("utf-8", "replace"))


# Playwright puts the door's answer into its message: "WebSocket error: URL 503 Service Unavailable\n{...}".
_PLAYWRIGHT_ANSWER = re.compile(r"WebSocket error: \S+ (\d{3})[^\n]*\n?(\{.*?\})?\s*(?:\n|$)")


def from_playwright(door: str, message: str) -> FarmError | None:
    """Map the message of a failed ``connect_over_cdp``; None when it is none of the farm's answers."""
    if found := _PLAYWRIGHT_ANSWER.search(message):
        return from_answer(int(found[1]), (found[2] or "").encode())
    if "ECONNREFUSED" in message:
        return DoorUnreachable(door, "connection refused")
    if any(
        sign in message for sign in ("ECONNRESET", "socket hang up", "has been closed", "<ws disconnected>")
    ):
        return JobLost("the connection closed before the browser was handed over", reason="closed")
    return None


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _seconds(told: object, header: str | None) -> float | None:
    for value in (told, header):
        try:
            return max(0.0, float(str(value)))
        except ValueError:
            continue
    return None
