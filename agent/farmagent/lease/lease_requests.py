"""What a proxy says when it asks for a lease or a join: read from the head of GET /lease, checked once."""

import re
from dataclasses import dataclass

from farmwire import bounds, headers

from farmagent.http.heads import BadRequest, Request

ID = re.compile(r"[0-9A-Za-z._-]{1,64}")
PUBLIC_BASE = re.compile(rf"wss?://[!-~]{{1,{bounds.PUBLIC_BASE_CHARS}}}")
ORIGIN = re.compile(rf"[!-~]{{1,{bounds.ORIGIN_CHARS}}}")
WHOLE = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """``lease_max_s`` None: the proxy named none."""

    lease: str
    is_join: bool
    lease_max_s: float | None
    waited_ms: str
    dials: str
    public_base: str
    profile: str
    launch: str
    allow_origin: str

    def answer_headers(self, pod: str) -> list[tuple[str, str]]:
        """What the head of the caller's answer must carry."""
        return [
            (headers.LEASE, self.lease),
            (headers.POD, pod),
            (headers.WAITED_MS, self.waited_ms),
            (headers.DIALS, self.dials),
            *(headers.readable_by(self.allow_origin) if self.allow_origin else []),
        ]


def read(request: Request) -> LeaseRequest:
    """Raises BadRequest."""
    lease, join = request.header(headers.LEASE), request.header(headers.JOIN)
    if (lease is None) == (join is None):
        raise BadRequest(400, f"exactly one of {headers.LEASE} and {headers.JOIN} is needed")
    identity = lease or join or ""
    if not ID.fullmatch(identity):
        raise BadRequest(400, "the lease's id is malformed")
    base = request.header(headers.PUBLIC_BASE) or f"ws://{request.header('host')}"
    if not PUBLIC_BASE.fullmatch(base):
        raise BadRequest(400, f"{headers.PUBLIC_BASE} must be a ws:// or wss:// URL")
    origin = request.header(headers.ALLOW_ORIGIN) or ""
    if origin and not ORIGIN.fullmatch(origin):
        raise BadRequest(400, f"{headers.ALLOW_ORIGIN} is no origin")
    max_s = _whole(request, headers.LEASE_MAX_S, None)
    return LeaseRequest(
        lease=identity,
        is_join=join is not None,
        lease_max_s=float(max_s) if max_s is not None else None,
        waited_ms=str(_whole(request, headers.WAITED_MS, 0)),
        dials=str(_whole(request, headers.DIALS, 1)),
        public_base=base.rstrip("/"),
        profile=request.header(headers.PROFILE) or "",
        launch=request.header(headers.LAUNCH) or "",
        allow_origin=origin,
    )


def _whole(request: Request, name: str, default: int | None) -> int | None:
    text = request.header(name)
    if text is None:
        return default
    if not WHOLE.fullmatch(text) or int(text) > bounds.WHOLE_NUMBER:
        raise BadRequest(400, f"{name} must be a whole number, at most {bounds.WHOLE_NUMBER}")
    return int(text)
