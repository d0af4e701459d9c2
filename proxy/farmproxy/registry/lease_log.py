"""The last line of every lease: one log line and one count, once its end is settled.

The proxy sees how the connection ended, the agent knows why. The reason waits for the agent's answer to the question that
the core asks anyway; where none is asked, or none comes, what the proxy saw stands.
"""

from farmwire.reasons import End
from structlog.typing import FilteringBoundLogger

from farmproxy.observe.metrics import Metrics
from farmproxy.registry.end_reasons import settled
from farmproxy.registry.leases import Lease, LeaseBook


class LeaseLog:
    __slots__ = ("_asked", "_book", "_log", "_metrics", "_open")

    def __init__(self, book: LeaseBook, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._book = book
        self._metrics = metrics
        self._log = log
        self._open: dict[str, Lease] = {}  # over, and its reason not settled
        self._asked: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, lease: Lease) -> None:
        """The lease is over; ``lease.end`` is what the proxy saw."""
        self._open[lease.id] = lease
        self._metrics.lease_seconds.observe(lease.ended_at - lease.began_at)

    def asked(self, id_: str) -> None:
        """Its agent is being asked: ``heard`` will follow."""
        self._asked.add(id_)

    def unless_asked(self, id_: str) -> None:
        if id_ not in self._asked:
            self.heard(id_, None, reached=True)

    def heard(self, id_: str, told: End | None, *, reached: bool) -> None:
        """The agent's word on this lease, or that it gave none."""
        self._asked.discard(id_)
        lease = self._open.pop(id_, None)
        if lease is None or lease.end is None:
            return
        end = settled(lease.end, by_pod=lease.by_pod, told=told, reached=reached)
        if end is not lease.end:
            self._book.correct(lease, end)
        self._metrics.leases_ended[end].inc()
        self._log.info(
            "lease-ended",
            lease=lease.id,
            pool=lease.pool,
            pod=lease.pod,
            label=lease.label,
            end=end,
            held_s=round(lease.began_at - lease.arrived_at, 4),
            lease_s=round(lease.ended_at - lease.began_at, 4),
            dials=lease.dials,
            bytes_up=lease.bytes_up,
            bytes_down=lease.bytes_down,
        )

    def settle_all(self) -> None:
        """The process ends: what is known now stands."""
        for id_ in list(self._open):
            self.heard(id_, None, reached=True)
