"""What the agents and the proxy wrote down themselves: log lines read as evidence, apart from what callers say.

The agents' lines decide who held a pod when; a lease that a killed agent never ended is open until that pod's
next incarnation begins.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farmctl.scenarios.results import Fate

Record = dict[str, Any]
# A Chrome started to begin with: the first an agent process starts, so whatever lease its forerunner had is over.
INCARNATION = ("chrome-started", "start")


@dataclass(frozen=True, slots=True)
class Tenure:
    """One lease on one pod by the agent's own word; unix seconds, ``to_t`` infinite while it runs."""

    pod: str
    lease: str
    from_t: float
    to_t: float
    end: str

    def __str__(self) -> str:
        return f"{self.pod}: {self.lease} {self.from_t:.3f}-{self.to_t:.3f} {self.end}"


def records(lines: Iterable[str]) -> list[Record]:
    """Return the lines that are JSON objects with an event and a time; others are no evidence."""
    found: list[Record] = []
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("t"), int | float) and "event" in told:
            found.append(told)
    return found


def tenures(logs: Mapping[str, Sequence[str]]) -> list[Tenure]:
    """Return every lease that the agents say began, in order of pod and time."""
    found: list[Tenure] = []
    for pod, lines in sorted(logs.items()):
        running: dict[str, float] = {}
        for told in records(lines):
            lease, at = str(told.get("lease", "")), float(told["t"])
            if told["event"] == "lease-began":
                running[lease] = at
            elif told["event"] == "lease-ended" and lease in running:
                found.append(Tenure(pod, lease, running.pop(lease), at, str(told.get("end", ""))))
            elif (told["event"], told.get("why")) == INCARNATION:
                found += [Tenure(pod, was, began, at, "killed") for was, began in running.items()]
                running.clear()
        found += [Tenure(pod, was, began, float("inf"), "open") for was, began in running.items()]
    return sorted(found, key=lambda tenure: (tenure.pod, tenure.from_t))


def overlaps(found: Sequence[Tenure]) -> list[str]:
    """Return a line for each pair of leases that held one pod at one time: there must be none."""
    told: list[str] = []
    latest: dict[str, Tenure] = {}
    for tenure in sorted(found, key=lambda each: (each.pod, each.from_t)):
        before = latest.get(tenure.pod)
        if before is not None and tenure.from_t < before.to_t:
            told.append(f"{before} overlaps {tenure}")
        if before is None or tenure.to_t > before.to_t:
            latest[tenure.pod] = tenure
    return told


def events(logs: Mapping[str, Sequence[str]] | Sequence[str], event: str) -> list[Record]:
    """Return the records of one event, of all pods or of one log, by time; ``pod`` is added from the key."""
    if isinstance(logs, Mapping):
        found = [{"pod": pod, **told} for pod, lines in logs.items() for told in records(lines)]
    else:
        found = records(logs)
    return sorted((told for told in found if told["event"] == event), key=lambda told: float(told["t"]))


def name_pods(fates: Iterable[Fate], scenario: str, proxy_log: Sequence[str]) -> None:
    """Write into sessions of which the caller could not see the pod the one that the proxy's log names."""
    pods: dict[str, list[str]] = {}
    for told in sorted(records(proxy_log), key=lambda told: float(told["t"]) - float(told.get("lease_s", 0))):
        if told["event"] == "lease-ended":
            pods.setdefault(str(told.get("label", "")), []).append(str(told.get("pod", "")))
    for fate in fates:
        sessions = [span for span in fate.spans if span.state == "session"]
        leased = pods.get(f"{scenario}/{fate.caller}", [])
        # A lease that no session of the caller matches (given back unused) leaves nothing to be sure of.
        if len(sessions) == len(leased):
            for span, pod in zip(sessions, leased, strict=True):
                span.pod = span.pod or pod


def faults_of_ours(lines: Iterable[str]) -> list[str]:
    """Return the proxy's log lines of level error: a fault in a pod is never one, a fault in the proxy is."""
    told = records(lines)
    loud = [record for record in told if str(record.get("level", "")).lower() in {"error", "critical"}]
    traces = [line for line in lines if line.startswith("Traceback")]
    return [json.dumps(record) for record in loud] + traces
