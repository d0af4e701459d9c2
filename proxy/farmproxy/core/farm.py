"""The lease core's one door: ``handle(event, now)`` returns the commands that the event brings.

Rules: it is plain and synchronous; an event that cannot happen now raises and changes nothing; after every event no
caller waits while a free pod of its pool exists, and a wake stands for the earliest deadline.
"""

from collections.abc import Callable, Mapping
from typing import Any

from farmwire.reasons import DialResult

from farmproxy.core import events as ev
from farmproxy.core.callers import Caller, Phase
from farmproxy.core.commands import Command, WakeAt
from farmproxy.core.errors import IllegalEvent
from farmproxy.core.event_context import EventContext
from farmproxy.core.free_pods import Choice
from farmproxy.core.invariants import check
from farmproxy.core.limits import Limits
from farmproxy.core.pods import SET_ASIDE
from farmproxy.core.pools import FOREVER, Pool
from farmproxy.core.snapshots import PoolCounts, PoolView, counts_of, view_of
from farmproxy.core.story import Ended, as_text, note

CallerEvent = (
    ev.CallerGrew | ev.CallerLeft | ev.DialSucceeded | ev.DialFailed | ev.SessionEnded | ev.LeaseRenewed
)

# When a caller's event may happen. A lease that was told to close can no longer be renewed, and whoever was
# refused or has left is unknown: the driver sends nothing more about it.
LEGAL: dict[type[CallerEvent], frozenset[Phase]] = {
    ev.CallerGrew: frozenset({Phase.HELD, Phase.DIALLING}),
    ev.CallerLeft: frozenset({Phase.HELD, Phase.DIALLING}),
    ev.DialSucceeded: frozenset({Phase.DIALLING}),
    ev.DialFailed: frozenset({Phase.DIALLING}),
    ev.SessionEnded: frozenset({Phase.LEASED, Phase.CLOSING}),
    ev.LeaseRenewed: frozenset({Phase.LEASED}),
}


class Farm:
    """Several pools, one clock. ``limits``: pool name to its numbers; the pools are fixed for life.

    ``choice``: which free pod a caller gets, recorded in docs/decisions.
    """

    def __init__(self, limits: Mapping[str, Limits], choice: Choice = Choice.LONGEST_FREE) -> None:
        self._context = EventContext()
        self._ended = Ended()
        self._callers: dict[str, Caller] = {}
        self._pools = {
            name: Pool(name, each, self._context, self._callers, self._ended, choice)
            for name, each in limits.items()
        }
        self._arrivals = 0
        self._door_closed_at: int | None = None  # callers that arrived later are refused
        self._wake_at = FOREVER
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.PodsChanged: self._pods_changed,
            ev.CallerArrived: self._caller_arrived,
            ev.CallerGrew: self._caller_grew,
            ev.CallerLeft: self._caller_left,
            ev.DialSucceeded: self._dial_succeeded,
            ev.DialFailed: self._dial_failed,
            ev.SessionEnded: self._session_ended,
            ev.LeaseRenewed: self._lease_renewed,
            ev.AgentSaid: self._agent_said,
            ev.TimePassed: self._time_passed,
            ev.DoorClosed: self._door_was_closed,
        }

    def handle(self, event: ev.Event, now: float) -> list[Command]:
        """What is to be done about ``event`` at ``now`` (seconds, monotonic), in order.

        Raises IllegalEvent, with nothing changed, for an unknown pool, id or question, or the wrong moment.
        """
        out = self._context.begin(now)
        self._handlers[type(event)](event)
        earliest = self._context.timers.next_at()
        if earliest < self._wake_at:
            self._wake_at = earliest
            out.append(WakeAt(earliest))
        return out

    def counts(self, pool: str) -> PoolCounts:
        """Cheap numbers for metrics. KeyError for an unknown pool."""
        return counts_of(self._pools[pool])

    def snapshot(self, now: float) -> dict[str, PoolView]:
        """The whole picture by pool name, for /status. O(everything)."""
        return {name: view_of(pool, now) for name, pool in self._pools.items()}

    def set_aside_s(self, pool: str, pod: ev.PodKey, now: float) -> float:
        """How long this pod is set aside from now, 0 when it is not (for the log line of its fault)."""
        found = self._pools[pool].pod_table.pods.get(pod)
        if found is None or found.state is not SET_ASIDE:
            return 0.0
        return max(0.0, found.aside_until - now)

    def check_invariants(self) -> None:
        """Raise BrokenInvariant if any book disagrees with another. O(everything): for tests."""
        check(self._pools, self._callers, self._door_closed_at, len(self._context.timers))

    def story(self, id_: str) -> list[str]:
        """What happened to a caller (by id) or a pod (by key), oldest first; empty when unknown or too old."""
        return as_text(self.story_lines(id_))

    def story_lines(self, id_: str) -> list[Any]:
        """The story as values: a caller's are ``(time, event or command)``, so its events can be replayed."""
        caller = self._callers.get(id_)
        if caller is not None:
            return list(caller.story)
        for pool in self._pools.values():
            pod = pool.pod_table.pods.get(id_)
            if pod is not None:
                return list(pod.story)
        return list(self._ended.get(id_))

    # Events

    def _pods_changed(self, event: ev.PodsChanged) -> None:
        pool = self._pool(event.pool)
        pool.pods_changed(event)
        pool.settle()

    def _caller_arrived(self, event: ev.CallerArrived) -> None:
        pool = self._pool(event.pool)
        if event.id in self._callers:
            raise IllegalEvent(f"caller {event.id} is already here")
        self._arrivals += 1
        caller = Caller(
            id=event.id,
            pool=event.pool,
            label=event.label,
            cost=event.cost,
            seq=self._arrivals,
            arrived_at=self._context.now,
            hold_s=event.hold_s,
            max_s=event.max_s,
        )
        note(caller.story, (self._context.now, event))
        pool.arrived(caller, door_closed=self._door_closed_at is not None)
        pool.settle()

    def _caller_grew(self, event: ev.CallerGrew) -> None:
        caller, pool = self._begin(event)
        pool.grew(caller, event.cost)

    def _caller_left(self, event: ev.CallerLeft) -> None:
        caller, pool = self._begin(event)
        pool.left(caller)
        pool.settle()

    def _dial_succeeded(self, event: ev.DialSucceeded) -> None:
        caller, pool = self._begin(event)
        pool.dial_succeeded(caller)
        pool.settle()

    def _dial_failed(self, event: ev.DialFailed) -> None:
        if event.result is DialResult.LEASED:
            raise IllegalEvent(f"caller {event.id}: a dial cannot fail with {event.result}")
        caller, pool = self._begin(event)
        pool.dial_failed(caller, event.result, event.busy)
        pool.settle()

    def _session_ended(self, event: ev.SessionEnded) -> None:
        caller, pool = self._begin(event)
        pool.session_ended(caller)
        pool.settle()

    def _lease_renewed(self, event: ev.LeaseRenewed) -> None:
        caller, pool = self._begin(event)
        pool.renewed(caller, event.max_s)

    def _agent_said(self, event: ev.AgentSaid) -> None:
        pool = self._pool(event.pool)
        pod = pool.pod_table.pods.get(event.pod)
        if pod is None or pod.ask is None:
            raise IllegalEvent(f"pod {event.pod} was not asked")
        pool.readiness.said(pod, event.free, event.busy)
        pool.settle()

    def _time_passed(self, _: ev.TimePassed) -> None:
        """Let what is due act. A pod that turned free goes to a caller before the next deadline is looked at, as it
        would have, had the wake not been late.
        """
        while self._context.timers.fire_next(self._context.now):
            for pool in self._pools.values():
                pool.settle()
        self._wake_at = FOREVER  # used up, whether early or late: the next one is asked for anew

    def _door_was_closed(self, _: ev.DoorClosed) -> None:
        if self._door_closed_at is None:
            self._door_closed_at = self._arrivals

    # Steps

    def _pool(self, name: str) -> Pool:
        pool = self._pools.get(name)
        if pool is None:
            raise IllegalEvent(f"there is no pool {name}")
        return pool

    def _begin(self, event: CallerEvent) -> tuple[Caller, Pool]:
        """The caller an event is about, once it is certain that the event is legal; from here on it counts."""
        caller = self._callers.get(event.id)
        if caller is None:
            raise IllegalEvent(f"there is no caller {event.id}")
        if caller.phase not in LEGAL[type(event)]:
            raise IllegalEvent(f"caller {event.id} is {caller.phase.value}: no {type(event).__name__} now")
        note(caller.story, (self._context.now, event))
        return caller, self._pools[caller.pool]
