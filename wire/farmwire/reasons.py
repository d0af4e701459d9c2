"""The closed lists of reasons: why a caller was refused, how a lease or a dial ended, what an agent's 409 says, why a watch
was started anew.

They are metric labels, JSON values and log fields alike, so a word stands here once and nowhere else.
"""

from dataclasses import dataclass
from enum import StrEnum


class Refusal(StrEnum):
    """Why the door answered without a session."""

    BAD_REQUEST = "bad-request"
    UNAUTHORIZED = "unauthorized"
    ORIGIN = "origin"
    NOT_FOUND = "not-found"
    HEAD_TIMEOUT = "head-timeout"
    BODY_TOO_LARGE = "body-too-large"
    QUEUE_FULL = "queue-full"
    PROXY_FAULT = "proxy-fault"  # a defect of the proxy's, which its log tells more about
    HEAD_TOO_LARGE = "head-too-large"
    POD_LOST = "pod-lost"
    HOLD_TIMEOUT = "hold-timeout"
    NO_FREE_POD = "no-free-pod"
    DRAINING = "draining"
    DESCRIPTORS = "descriptors"
    LEASE_MAX = "lease-max"
    HTTP_VERSION = "http-version"
    CALLER = "caller"  # the agent's own 4xx with scope "caller", passed on

    __hash__ = str.__hash__  # Enum's own is a Python call each time a member is a key


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status of a refusal; ``retry_after_s`` is whole seconds, or None where a retry does not help."""

    status: int
    phrase: str
    retry_after_s: int | None = None


ANSWERS: dict[Refusal, Answer] = {
    Refusal.BAD_REQUEST: Answer(400, "Bad Request"),
    Refusal.UNAUTHORIZED: Answer(401, "Unauthorized"),
    Refusal.ORIGIN: Answer(403, "Forbidden"),
    Refusal.NOT_FOUND: Answer(404, "Not Found"),
    Refusal.HEAD_TIMEOUT: Answer(408, "Request Timeout"),
    Refusal.BODY_TOO_LARGE: Answer(413, "Content Too Large"),
    Refusal.QUEUE_FULL: Answer(429, "Too Many Requests", 5),
    Refusal.HEAD_TOO_LARGE: Answer(431, "Request Header Fields Too Large"),
    Refusal.PROXY_FAULT: Answer(500, "Internal Server Error"),
    Refusal.POD_LOST: Answer(502, "Bad Gateway", 0),
    Refusal.HOLD_TIMEOUT: Answer(503, "Service Unavailable", 5),
    Refusal.NO_FREE_POD: Answer(503, "Service Unavailable", 1),
    Refusal.DRAINING: Answer(503, "Service Unavailable", 1),
    Refusal.DESCRIPTORS: Answer(503, "Service Unavailable", 5),
    Refusal.LEASE_MAX: Answer(504, "Gateway Timeout"),
    Refusal.HTTP_VERSION: Answer(505, "HTTP Version Not Supported"),
    Refusal.CALLER: Answer(400, "Bad Request"),
}


class End(StrEnum):
    """How a lease ended. The proxy names its own part at once; the agent's word, when it comes, is final."""

    DONE = "done"  # the caller closed (its connection, or Chrome by Browser.close), or its HTTP answer was complete
    BROWSER_DIED = "browser-died"  # Chrome crashed, was killed or froze (Browser.close by the caller is done)
    POD_LOST = "pod-lost"  # the agent's connection broke and the agent cannot be asked
    DRAINED = "drained"  # pod or proxy drained past its limit
    MAX = "max"  # the lease reached its longest time
    IDLE = "idle"  # no byte from the caller for the idle limit
    STALL = "stall"  # the caller stopped reading for the stall limit
    CALLER_LOST = "caller-lost"  # keepalive gave the caller up
    DELETED = "deleted"  # DELETE /leases/ID
    FIRST_USE = "first-use"  # POST /leases and no connection within the first-use limit
    REJOIN = "rejoin"  # none for the rejoin limit after the last one closed

    __hash__ = str.__hash__  # Enum's own is a Python call each time a member is a key


class Busy(StrEnum):
    """Why an agent answered /lease with 409, or /readyz with 503: its state, never a fault."""

    BUSY = "busy"
    RECYCLING = "recycling"
    STARTING = "starting"
    DRAINING = "draining"


class DialResult(StrEnum):
    """Label of farmproxy_dials_total. Those of ``FAULTS`` set the pod aside."""

    LEASED = "leased"
    BUSY = "busy"  # a 409 of any kind
    CALLER = "caller"  # a 4xx with scope "caller"
    REJECTED = "rejected"  # a 400 or 431 of an agent's: the proxy's own request is at fault, not the pod
    REFUSED = "refused"  # connection refused or reset before an answer
    TIMEOUT = "timeout"  # no connection, no first answer, or no 101 within its limit
    BROKEN = "broken"  # closed before the first caller byte was written
    GARBAGE = "garbage"  # not HTTP, or not the handshake's answer
    WRONG_POD = "wrong-pod"  # Farm-Pod names another UID than the dialled one
    ABANDONED = "abandoned"  # the caller left meanwhile; no fault

    __hash__ = str.__hash__  # Enum's own is a Python call each time a member is a key


class WatchRestart(StrEnum):
    """Label of farmproxy_watch_restarts_total and word of the log line."""

    CLOSED = "closed"  # the API server ended the watch, as it does in time
    GONE = "gone"  # 410 in any form: the resume point is too old, list again
    SILENCE = "silence"  # nothing for the silence limit, bookmarks included
    UNAUTHORIZED = "unauthorized"  # 401: the token is read again
    REFUSED = "refused"  # any other HTTP status than 200
    ERROR = "error"  # an ERROR event that is no 410
    BROKEN = "broken"  # no connection, or it broke
    GARBAGE = "garbage"  # an answer that is no list or a line that is no event


FAULTS = frozenset(
    {DialResult.REFUSED, DialResult.TIMEOUT, DialResult.BROKEN, DialResult.GARBAGE, DialResult.WRONG_POD}
)
SCOPE_CALLER = "caller"  # value of "scope" in an agent's 4xx that concerns the caller, not the pod
