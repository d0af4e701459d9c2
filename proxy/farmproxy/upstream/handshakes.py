"""The lease handshake as pure text and outcomes: what is asked of an agent, and what its answer means.

Classes of answer: the pod's state (409), the caller's own fault (4xx with scope "caller"), the proxy's own (an agent's 400
or 431), and faults of the pod.
"""

from dataclasses import dataclass

import msgspec
from farmwire import bounds, headers, paths
from farmwire.reasons import SCOPE_CALLER, Busy, DialResult

from farmproxy.upstream.response_heads import BODY_LIMIT, AnswerHead, Garbage, read_head

_BUSY = {str(busy): busy for busy in Busy}
_UPGRADE = headers.UPGRADE_TOKEN.encode()
_LEASE, _POD = headers.LEASE.lower().encode(), headers.POD.lower().encode()
NOT_TAKEN = "the agent did not take the proxy's own request for the lease; the proxy's log says more"
_NOT_TAKEN_STATUS = frozenset(
    {400, 431}
)  # with an agent's JSON: a stranger at the pod's address says it in HTML
NOT_RUNNING = 404  # a join of a lease that this pod does not run


@dataclass(frozen=True, slots=True)
class Leased:
    """101 from the right pod."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """102: the agent is alive and not done."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No lease. ``status`` and ``body`` are an answer that is the caller's, or the proxy's (or a join's 404)."""

    result: DialResult
    busy: Busy | None = None
    status: int = 0
    body: bytes = b""


Outcome = Leased | Preparing | Failed
LEASED, PREPARING = Leased(), Preparing()


class _Told(msgspec.Struct):
    """The body of an agent's 4xx."""

    reason: str = ""
    scope: str = ""


_decode_told = msgspec.json.Decoder(_Told).decode


def lease_head(
    host: str,
    lease: str,
    *,
    key: str | None,
    max_s: int,
    waited_ms: int,
    dials: int,
    public_base: str,
    launch: str = "",
    allow_origin: str = "",
) -> bytes:
    """GET /lease for a new lease; ``launch`` as ``farmwire.launch_options`` writes it."""
    more = (f"{headers.LAUNCH}: {launch}\r\n" if launch else "") + _origin_line(allow_origin)
    return _request(host, headers.LEASE, lease, key, max_s, waited_ms, dials, public_base, more)


def join_head(
    host: str,
    lease: str,
    *,
    key: str | None,
    max_s: int,
    waited_ms: int,
    dials: int,
    public_base: str,
    allow_origin: str = "",
) -> bytes:
    """GET /lease for one more connection of a running lease, which may last ``max_s`` from now."""
    more = _origin_line(allow_origin)
    return _request(host, headers.JOIN, lease, key, max_s, waited_ms, dials, public_base, more)


def _request(
    host: str,
    named: str,
    lease: str,
    key: str | None,
    max_s: int,
    waited_ms: int,
    dials: int,
    public_base: str,
    more: str = "",
) -> bytes:
    return (
        f"GET {paths.LEASE} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n"
        f"Upgrade: {headers.UPGRADE_TOKEN}\r\n{named}: {lease}\r\n{_key_line(key)}"
        f"{headers.LEASE_MAX_S}: {_bounded(max_s)}\r\n{headers.WAITED_MS}: {_bounded(waited_ms)}\r\n"
        f"{headers.DIALS}: {_bounded(dials)}\r\n"
        f"{headers.PUBLIC_BASE}: {public_base}\r\n{more}\r\n"
    ).encode("latin-1")


def told_by(failed: Failed) -> dict[str, object]:
    """An agent's refusal as fields of a log line."""
    return {"status": failed.status, "answer": failed.body[:300].decode("utf-8", "replace")}


def uid_of(pod_key: str) -> str | None:
    """The UID that an answer must name; None for an endpoint without targetRef, which is keyed by its address."""
    return None if ":" in pod_key else pod_key


class AnswerReader:
    """Fed with what the agent sends, in any pieces; gives outcomes until one is final (not Preparing)."""

    __slots__ = ("_alive", "_buffer", "_join", "_lease", "_uid")

    def __init__(self, lease: str, uid: str | None, *, join: bool = False) -> None:
        """``uid`` None: the endpoint names no pod, so any pod there is the right one."""
        self._buffer = bytearray()
        self._alive = False  # said 102
        self._lease = lease.encode()
        self._uid = uid.encode() if uid is not None else None
        self._join = join

    def feed(self, data: bytes) -> Outcome | None:
        """None: more is needed."""
        self._buffer += data
        return self.next()

    def next(self) -> Outcome | None:
        """The next outcome of what has come so far."""
        try:
            head = read_head(self._buffer)
            return None if head is None else self._judge(head, whole=False)
        except Garbage:
            return Failed(DialResult.GARBAGE)

    def closed(self) -> Failed:
        """The agent closed: what its answer, whole or not, means."""
        if not self._buffer:
            return Failed(DialResult.BROKEN if self._alive else DialResult.REFUSED)
        try:
            head = read_head(self._buffer)
            outcome = None if head is None else self._judge(head, whole=True)
        except Garbage:
            return Failed(DialResult.GARBAGE)
        return outcome if isinstance(outcome, Failed) else Failed(DialResult.BROKEN)

    def _judge(self, head: AnswerHead, *, whole: bool) -> Outcome | None:
        if head.status == 102:
            del self._buffer[: head.size]
            self._alive = True
            return PREPARING
        if head.status == 101:
            return self._judge_101(head)
        if not 400 <= head.status < 500 or len(self._buffer) > head.size + BODY_LIMIT:
            return Failed(DialResult.GARBAGE)
        return self._read_4xx(head, whole=whole)

    def _read_4xx(self, head: AnswerHead, *, whole: bool) -> Outcome | None:
        if head.body is None and not whole:
            return None  # the body ends with the connection
        length = len(self._buffer) - head.size if head.body is None else head.body
        body = bytes(self._buffer[head.size : head.size + length])
        if len(body) < length:
            return Failed(DialResult.BROKEN) if whole else None
        return self._judge_4xx(head.status, body)

    def _judge_101(self, head: AnswerHead) -> Outcome:
        fields = head.fields
        if fields.get(b"upgrade", b"").lower() != _UPGRADE or len(self._buffer) > head.size:
            return Failed(DialResult.GARBAGE)  # an agent does not speak before it is spoken to
        if fields.get(_LEASE, self._lease if self._join else None) != self._lease:
            return Failed(DialResult.GARBAGE)
        pod = fields.get(_POD)
        if pod is None:
            return LEASED if self._join else Failed(DialResult.GARBAGE)
        if self._uid is not None and pod.rpartition(b"/")[2] != self._uid:
            return Failed(DialResult.WRONG_POD)
        return LEASED

    def _judge_4xx(self, status: int, body: bytes) -> Failed:
        try:
            told = _decode_told(body)
        except (msgspec.MsgspecError, RecursionError):  # nested too deeply
            told = _Told()
        if told.scope == SCOPE_CALLER:
            return Failed(DialResult.CALLER, status=status, body=body)
        if status == 409 and told.reason in _BUSY:
            return Failed(DialResult.BUSY, busy=_BUSY[told.reason])
        if status in _NOT_TAKEN_STATUS and told.reason:
            return Failed(DialResult.REJECTED, status=status, body=body)
        if self._join and status == NOT_RUNNING:
            return Failed(DialResult.GARBAGE, status=status)
        return Failed(DialResult.GARBAGE)


def _bounded(number: int) -> int:
    return min(number, bounds.WHOLE_NUMBER)


def _origin_line(origin: str) -> str:
    return f"{headers.ALLOW_ORIGIN}: {origin}\r\n" if origin else ""


def _key_line(key: str | None) -> str:
    return f"{headers.KEY}: {key}\r\n" if key else ""
