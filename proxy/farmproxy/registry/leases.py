"""Leases as callers may ask for them: running ones, and for five minutes how the others ended.

A lease belongs to the name of the token that took it; to any other it does not exist. Its KEY stands for the token.
The core decides who gets a lease; this book only remembers.
"""

import hmac
import math
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Protocol

from farmwire.reasons import End

from farmproxy.registry.history import Ended, History
from farmproxy.registry.ids import key_of


class Kind(Enum):
    SOCKET = "socket"
    RENDER = "render"
    NAMED = "named"  # POST /leases: its callers' sockets are joins


class Joined(Protocol):
    """A connection that was added to a lease. ``idle``: its caller was silent for the idle limit."""

    @property
    def idle(self) -> bool: ...

    def close(self, end: End) -> None: ...


class Lease:
    """One lease, from its caller's arrival on. Times: ``_at`` monotonic, ``_wall`` Unix seconds, which are for people only:
    a clock that is set must not change how long anything lasts.
    """

    __slots__ = (
        "address",
        "allow_origin",
        "arrived_at",
        "began_at",
        "began_wall",
        "by_pod",
        "bytes_down",
        "bytes_up",
        "dials",
        "end",
        "ended_at",
        "expires_at",
        "id",
        "joins",
        "kind",
        "label",
        "launch",
        "max_s",
        "owner",
        "pod",
        "pod_key",
        "pool",
        "port",
        "public_base",
    )

    def __init__(
        self, id_: str, kind: Kind, *, owner: str, pool: str, label: str, max_s: float, now: float
    ) -> None:
        self.id = id_
        self.kind = kind
        self.owner = owner
        self.pool = pool
        self.label = label
        self.max_s = max_s
        self.arrived_at = now
        self.began_at = self.began_wall = self.ended_at = self.expires_at = 0.0
        self.dials = self.bytes_up = self.bytes_down = self.port = 0
        self.pod = self.pod_key = self.address = self.public_base = ""
        self.allow_origin = ""  # Farm-Allow-Origin
        self.launch = ""  # Farm-Launch, until it runs
        self.joins: set[Joined] | None = None
        self.end: End | None = None
        self.by_pod = False

    @property
    def key(self) -> str:
        return key_of(self.id)

    def left_s(self, now: float) -> int:
        """Whole seconds that it may still last, as its agent is told."""
        return max(1, math.ceil(self.expires_at - now))

    @property
    def waited_ms(self) -> int:
        return int((self.began_at - self.arrived_at) * 1000)


class LeaseBook:
    """``live``: running leases by id."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.live: dict[str, Lease] = {}
        self._history = History()

    def begin(self, lease: Lease) -> None:
        lease.began_at = self._clock()
        lease.began_wall = time.time()
        lease.expires_at = lease.began_at + lease.max_s
        self.live[lease.id] = lease

    def ended(self, lease: Lease, end: End) -> None:
        """The lease is over; ``correct`` may still change the reason."""
        self.live.pop(lease.id, None)
        lease.end = end
        lease.ended_at = self._clock()
        ended = Ended(
            lease.began_wall,
            time.time(),
            end,
            lease.kind.value,
            lease.label,
            lease.owner,
            lease.pod,
            lease.pool,
        )
        self._history.keep(lease.id, ended, lease.ended_at)

    def correct(self, lease: Lease, end: End) -> None:
        lease.end = end
        kept = self._history.find(lease.id)
        if kept is not None:
            kept.end = end

    def find(self, id_: str, owner: str | None, key: str) -> Lease | Ended | None:
        """The lease by its KEY, or by its owner's name; None when there is no such lease for this caller."""
        if key and not hmac.compare_digest(key.encode(), key_of(id_).encode()):
            return None
        found: Lease | Ended | None = self.live.get(id_) or self._history.find(id_)
        return found if found is not None and (key or found.owner == owner) else None

    def of(self, owner: str, label: str | None) -> Iterator[Lease]:
        """The owner's running leases, oldest first; ``label`` None: all."""
        for lease in self.live.values():
            if lease.owner == owner and (label is None or lease.label == label):
                yield lease

    def sweep(self) -> None:
        """Forget what ended long ago."""
        self._history.forget(self._clock())


def shown(id_: str, lease: Lease | Ended, now: float) -> dict[str, Any]:
    """A lease as GET /leases/ID says it: never its key. ``now``: monotonic."""
    told: dict[str, Any] = {
        "id": id_,
        "state": "leased" if isinstance(lease, Lease) else "ended",
        "kind": lease.kind.value if isinstance(lease, Lease) else lease.kind,
        "pool": lease.pool,
        "pod": lease.pod,
        "label": lease.label,
        "began_at": moment(lease.began_wall),
    }
    if isinstance(lease, Lease):
        told["expires_at"] = moment_in(lease.expires_at - now)
        told["connections"] = len(lease.joins or ()) + (lease.kind is not Kind.NAMED)
    else:
        told["ended_at"] = moment(lease.ended_wall)
        told["end"] = lease.end
    return told


def moment_in(seconds: float) -> str:
    """The moment so many seconds from now, on the clock that people read."""
    return moment(time.time() + seconds)


def moment(wall: float) -> str:
    """RFC 3339 in UTC, milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall))
    return f"{whole}.{int(wall % 1 * 1000):03d}Z"
