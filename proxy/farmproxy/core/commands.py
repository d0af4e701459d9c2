"""What the core wants done, as plain values. The driver does them in order and reports back by events.

They are msgspec structs: making one costs a tenth of what a frozen dataclass costs, at several a lease.
"""

import msgspec
from farmwire.reasons import End, Refusal

from farmproxy.core.events import PodKey


class Dial(msgspec.Struct, frozen=True, gc=False):
    """Connect to the pod and do the lease handshake for this caller; answer DialSucceeded or DialFailed.

    ``waited_s`` since arrival; ``dials`` counts this one; ``grantable_since`` is the moment from which
    both the pod was free and the caller was there (farmproxy_grant_seconds starts then).
    """

    id: str
    pool: str
    pod: PodKey
    pod_name: str
    address: str
    port: int
    waited_s: float
    dials: int
    max_s: float
    grantable_since: float


class AbandonDial(msgspec.Struct, frozen=True, gc=False):
    """The caller of this dial is gone or refused: drop the connection; no answer is awaited."""

    id: str


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """Answer the caller and end its request."""

    id: str
    reason: Refusal
    detail: str = ""


class CloseSession(msgspec.Struct, frozen=True, gc=False):
    """End the session now, then report SessionEnded with this same end."""

    id: str
    end: End


class AskAgent(msgspec.Struct, frozen=True, gc=False):
    """GET /readyz?wait=wait_s[&lease=lease]; answer AgentSaid. At most one is under way a pod."""

    pool: str
    pod: PodKey
    address: str
    port: int
    wait_s: float
    lease: str | None = None


class StopAsking(msgspec.Struct, frozen=True, gc=False):
    """The answer is of no more use: cancel the question; no AgentSaid is awaited."""

    pool: str
    pod: PodKey


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Send TimePassed at ``at``: sooner than any WakeAt before it that is still due."""

    at: float


Command = Dial | AbandonDial | Refuse | CloseSession | AskAgent | StopAsking | WakeAt
