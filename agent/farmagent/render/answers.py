"""What a render job answers: the page in the asked-for format, or a refusal that names its reason.

The rule: one reason, one status. Everything that can go wrong with a page is a RenderError; only the loss of
Chrome itself is not (``cdp.CdpLost``), because that ends the lease and not merely the job.
"""

from enum import StrEnum

import msgspec

ANSWER_MAX_BYTES = 64 * 1024 * 1024  # bounds the agent's memory: a body is held whole


class Reason(StrEnum):
    BAD_REQUEST = "bad-request"
    REFUSED_TARGET = "refused-target"
    TOO_LARGE = "too-large"
    PAGE_FAILED = "page-failed"  # a navigation error; the detail begins with Chrome's net::ERR_ word
    PAGE_CRASHED = "page-crashed"
    SCRIPT_FAILED = "script-failed"
    NOT_SETTLED = "not-settled"


STATUSES: dict[Reason, int] = {
    Reason.BAD_REQUEST: 400,
    Reason.REFUSED_TARGET: 403,
    Reason.TOO_LARGE: 413,
    Reason.PAGE_FAILED: 422,
    Reason.PAGE_CRASHED: 422,
    Reason.SCRIPT_FAILED: 422,
    Reason.NOT_SETTLED: 504,
}

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "text": "text/plain; charset=utf-8",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "json": "application/json",
}


class RenderError(Exception):
    """The job failed for a reason that the caller is told."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class RenderAnswer(msgspec.Struct, frozen=True):
    """An HTTP answer. The agent frames it (length, Connection) and adds the lease's own headers."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class _Refusal(msgspec.Struct):
    reason: str
    detail: str


def refusal(error: RenderError) -> RenderAnswer:
    body = msgspec.json.encode(_Refusal(error.reason.value, error.detail))
    headers = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))
    return RenderAnswer(STATUSES[error.reason], headers, body)


def too_large(what: str, size: int, limit: int, unit: str) -> RenderError:
    return RenderError(Reason.TOO_LARGE, f"{what} is {size} {unit}; the limit is {limit}")
