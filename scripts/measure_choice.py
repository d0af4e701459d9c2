#!/usr/bin/env python3
"""Count stale dials for both orders of choosing a free pod, on the real core in simulated time (seeded).

Pods die without notice at random; slices learn of it late; half of the deaths take the machine along, so that a dial
to them is silent for 2 s instead of refused. Then the same with one broken pod, whose sessions die young and which
says free again at once. docs/decisions quotes the tables.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from farmproxy.core import commands as cmd
from farmproxy.core import events as ev
from farmproxy.core.farm import Farm
from farmproxy.core.free_pods import Choice
from farmproxy.core.limits import Limits
from farmwire.reasons import DialResult, End

PODS = 200
SECONDS = 1200
JOB_S, RECYCLE_S = 4.0, 0.3  # means
LIFE_S = 900.0  # mean life of a pod
SLICE_LAG_S = (
    2.0,
    40.0,
)  # from a death to the slice's word: a readiness probe at best, a node's lease at worst
REPLACED_S = 20.0
DIAL_S, SILENT_S = 0.002, 2.0
BREAKS_AT_S = 60.0  # the first pod leased after this breaks, where one shall
BROKEN_S = 0.05  # how long a session on it lasts


class Simulation:
    def __init__(self, choice: Choice, load: float, *, seed: int = 1, broken: bool = False) -> None:
        self.farm = Farm({"d": Limits()}, choice)
        self.rng = random.Random(seed)
        self.load = load
        self.broken = "" if broken else None  # the broken pod's key, once one is
        self.now = 0.0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.ids = itertools.count()
        self.alive: dict[str, bool] = {}  # False: its machine is gone too
        self.dead_silent: dict[str, bool] = {}
        self.sessions: dict[str, str] = {}
        self.uses: Counter[str] = Counter()
        self.waits: list[float] = []
        self.stale = self.leases = self.lost = 0

    def run(self) -> None:
        for _ in range(PODS):
            self.new_pod()
        self.arrive()
        while self.agenda and self.agenda[0][0] < SECONDS:
            self.now, _, act = heapq.heappop(self.agenda)
            act()

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (self.now + delay_s, next(self.order), act))

    def tell(self, event: ev.Event) -> None:
        for command in self.farm.handle(event, self.now):
            self.do(command)

    def do(self, command: Any) -> None:
        if isinstance(command, cmd.WakeAt):
            self.after(max(0.0, command.at - self.now), lambda: self.tell(ev.TimePassed()))
        elif isinstance(command, cmd.AskAgent):
            free = True if command.pod in self.alive else None
            recycles = command.lease and free and command.pod != self.broken
            delay_s = self.rng.expovariate(1 / RECYCLE_S) if recycles else DIAL_S
            asked = ev.AgentSaid("d", command.pod, free)
            self.after(delay_s, lambda: self.answer(asked))
        elif isinstance(command, cmd.Dial):
            self.dial(command)

    def answer(self, said: ev.AgentSaid) -> None:
        pod = self.farm._pools["d"].pod_table.pods.get(said.pod)  # noqa: SLF001  # StopAsking, the short way
        if pod is not None and pod.ask is not None:
            self.tell(said)

    def dial(self, dial: cmd.Dial) -> None:
        if dial.pod in self.alive:
            self.after(DIAL_S, lambda: self.leased(dial, self.now))
            return
        self.stale += 1
        silent = self.dead_silent[dial.pod]
        result = DialResult.TIMEOUT if silent else DialResult.REFUSED
        self.after(SILENT_S if silent else DIAL_S, lambda: self.tell(ev.DialFailed(dial.id, result)))

    def leased(self, dial: cmd.Dial, now: float) -> None:
        self.leases += 1
        self.uses[dial.pod] += 1
        self.waits.append(now - dial.grantable_since)
        self.sessions[dial.id] = dial.pod
        self.tell(ev.DialSucceeded(dial.id))
        if self.broken == "" and self.now > BREAKS_AT_S:
            self.broken = dial.pod
        self.lost += dial.pod == self.broken
        lasts_s = BROKEN_S if dial.pod == self.broken else self.rng.expovariate(1 / JOB_S)
        self.after(lasts_s, lambda: self.end(dial.id, End.DONE))

    def end(self, id_: str, end: End) -> None:
        if self.sessions.pop(id_, None) is not None:
            self.tell(ev.SessionEnded(id_, end))

    def arrive(self) -> None:
        self.tell(ev.CallerArrived(f"c{next(self.ids)}", "d", 300, 900))
        self.after(self.rng.expovariate(self.load * PODS / (JOB_S + RECYCLE_S)), self.arrive)

    def new_pod(self) -> None:
        key = f"u{next(self.ids)}"
        self.alive[key] = True
        self.tell(ev.PodsChanged("d", seen=(ev.PodSeen(key, key, "10.0.0.1", 9222, True, False, True),)))
        self.after(self.rng.expovariate(1 / LIFE_S), lambda: self.die(key))

    def die(self, key: str) -> None:
        if key == self.broken:
            return  # it lives on, and that is the trouble
        del self.alive[key]
        self.dead_silent[key] = self.rng.random() < 0.5
        for id_ in [id_ for id_, pod in self.sessions.items() if pod == key]:
            self.end(id_, End.POD_LOST)
        self.after(self.rng.uniform(*SLICE_LAG_S), lambda: self.tell(ev.PodsChanged("d", gone=(key,))))
        self.after(REPLACED_S, self.new_pod)


def stale_dials() -> None:
    print(f"{PODS} pods, mean life {LIFE_S:g} s, slices {SLICE_LAG_S[0]:g} to {SLICE_LAG_S[1]:g} s late")
    print("| load | choice | leases | stale dials per 1,000 | mean wait ms | p99 ms | uses, p95:p5 |")
    print("|---|---|---|---|---|---|---|")
    for load in (0.2, 0.5, 0.8, 0.95):
        for choice in Choice:
            one = Simulation(choice, load)
            one.run()
            waits = sorted(one.waits)
            uses = sorted(one.uses.get(key, 0) for key in list(one.alive)[:100])  # the oldest
            cells = [
                f"{load:g}",
                choice.value,
                f"{one.leases:,}",
                f"{1000 * one.stale / one.leases:.1f}",
                f"{1000 * sum(waits) / len(waits):.1f}",
                f"{1000 * waits[int(len(waits) * 0.99)]:.0f}",
                f"{uses[int(len(uses) * 0.95)]}:{uses[int(len(uses) * 0.05)]}",
            ]
            print("| " + " | ".join(cells) + " |")


def jobs_lost() -> None:
    print(f"\nOne of {PODS} pods broken: its sessions die after {BROKEN_S:g} s")
    print("| load | choice | jobs lost per 1,000 |")
    print("|---|---|---|")
    for load in (0.2, 0.5, 0.8):
        for choice in Choice:
            one = Simulation(choice, load, broken=True)
            one.run()
            print(f"| {load:g} | {choice.value} | {1000 * one.lost / one.leases:.1f} |")


if __name__ == "__main__":
    stale_dials()
    jobs_lost()
