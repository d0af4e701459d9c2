"""What the API server sends, as far as it matters: pages of a list, lines of a watch, a Status."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from farmproxy.kube.endpoint_slices import EndpointSlice

NULL = Raw(b"null")
# What decoding raises for what is none of these; RecursionError where it nests thousands deep.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ListMeta(Struct, frozen=True):
    resourceVersion: str | None = None  # noqa: N815  # an opaque string: kept and given back, never compared
    continue_: str | None = msgspec.field(name="continue", default=None)


class ListPage(Struct, frozen=True):
    """Items stay raw, so that they need not all stand decoded in memory."""

    metadata: ListMeta | None = None
    items: list[Raw] | None = None


class WatchEvent(Struct, frozen=True):
    type: str | None = None
    object: Raw = NULL


class StatusDetails(Struct, frozen=True):
    retryAfterSeconds: float | None = None  # noqa: N815


class Status(Struct, frozen=True):
    """metav1.Status: why the API server refused or ended something."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None

    @property
    def gone(self) -> bool:
        return self.code == 410 or self.reason in {"Expired", "Gone"}

    @property
    def retry_after_s(self) -> float | None:
        return self.details.retryAfterSeconds if self.details else None


decode_page = msgspec.json.Decoder(ListPage).decode
decode_event = msgspec.json.Decoder(WatchEvent).decode
decode_slice = msgspec.json.Decoder(EndpointSlice).decode
_decode_status = msgspec.json.Decoder(Status).decode


def status_from(content: Any) -> Status:
    """A Status of any bytes, empty when they are none."""
    try:
        return _decode_status(content)
    except UNREADABLE:
        return Status()
