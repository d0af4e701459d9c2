"""What the core wants done, as plain values. The driver does them in order and reports back by events."""

from dataclasses import dataclass

from farmwire.reasons import End, Refusal

from farmproxy.core.events import PodKey


@dataclass(frozen=True, slots=True)
class Dial:
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


@dataclass(frozen=True, slots=True)
class AbandonDial:
    """The caller of this dial is gone or refused: drop the connection; no answer is awaited."""

    id: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer the caller and end its request."""

    id: str
    reason: Refusal
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session now, then report SessionEnded with this same end."""

    id: str
    end: End


@dataclass(frozen=True, slots=True)
class AskAgent:
    """GET /readyz?wait=wait_s[&lease=lease]; answer AgentSaid. At most one is under way a pod."""

    pool: str
    pod: PodKey
    address: str
    port: int
    wait_s: float
    lease: str | None = None


@dataclass(frozen=True, slots=True)
class StopAsking:
    """The answer is of no more use: cancel the question; no AgentSaid is awaited."""

    pool: str
    pod: PodKey


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send TimePassed at ``at``; replaces any earlier WakeAt."""

    at: float


Command = Dial | AbandonDial | Refuse | CloseSession | AskAgent | StopAsking | WakeAt
