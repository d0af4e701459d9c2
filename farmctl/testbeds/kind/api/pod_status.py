"""Reads the API's objects as scenarios want them: pods, and where a pod's readiness and its endpoint's differ."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from farmctl.testbeds.base import Pod, Readiness
from farmctl.testbeds.kind.api.objects import Json
from farmctl.testbeds.kind.cluster.containers import Container, Place

PORT = 9222
Phase = Literal["Pending", "Running", "Terminating", "Failed"]


def pod(raw: Json, now: datetime) -> Pod:
    meta, status = raw["metadata"], raw.get("status", {})
    ip = status.get("podIP", "")
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        address=f"{ip}:{PORT}" if ip else "",
        phase=phase(raw),
        ready=is_ready(raw),
        restarts=sum(each.get("restartCount", 0) for each in status.get("containerStatuses") or ()),
        age_s=round((now - _time(meta["creationTimestamp"])).total_seconds(), 1),
        node=raw["spec"].get("nodeName", ""),
    )


def phase(raw: Json) -> Phase:
    if going(raw):
        return "Terminating"
    said = raw.get("status", {}).get("phase", "Pending")
    return "Running" if said == "Running" else "Pending" if said == "Pending" else "Failed"


def going(raw: Json) -> bool:
    return "deletionTimestamp" in raw["metadata"]


def is_ready(raw: Json) -> bool:
    return _ready_condition(raw).get("status") == "True"


def _ready_condition(raw: Json) -> Mapping[str, Any]:
    found: Iterable[Mapping[str, Any]] = raw.get("status", {}).get("conditions") or ()
    return next((each for each in found if each["type"] == "Ready"), {})


def place(raw: Json) -> Place:
    return Place(
        raw["spec"].get("nodeName", ""), raw["metadata"]["uid"], raw.get("status", {}).get("podIP", "")
    )


def readiness(pods: Iterable[Json], slices: Iterable[Json], now: datetime) -> list[Readiness]:
    """``differs_s`` counts from the pod's own change: the API dates that one, and no endpoint's."""
    listed = ready_uids(slices)
    found = []
    for raw in pods:
        own, endpoint = is_ready(raw) and not going(raw), raw["metadata"]["uid"] in listed
        since = _ready_condition(raw).get("lastTransitionTime")
        changed_s = max(0.0, round((now - _time(since)).total_seconds(), 1)) if since else None
        differs_s = (changed_s or 0.0) if own != endpoint else 0.0
        found.append(Readiness(raw["metadata"]["name"], own, endpoint, differs_s, changed_s))
    return found


def ready_uids(slices: Iterable[Json]) -> set[str]:
    """UIDs of the pods that some slice says are ready; nil counts as true (EndpointConditions' own text)."""
    return {
        endpoint["targetRef"]["uid"]
        for each in slices
        for endpoint in each.get("endpoints") or ()
        if endpoint.get("targetRef") and (endpoint.get("conditions") or {}).get("ready") is not False
    }


def by_containers(known: Pod, containers: Sequence[Container]) -> Pod:
    """What has become of a pod that the API told of before it went away: its node knows."""
    mine = [each for each in containers if each.pod_uid == known.uid]
    running = [each for each in mine if each.running]
    latest = max((each.attempt for each in mine), default=known.restarts)
    return Pod(
        name=known.name,
        uid=known.uid,
        address=known.address,
        phase=known.phase if running else "Failed",
        ready=known.ready and bool(running) and latest == known.restarts,
        restarts=max(latest, known.restarts),
        age_s=known.age_s,
        node=known.node,
    )


def _time(said: str) -> datetime:
    return datetime.fromisoformat(said).astimezone(UTC)
