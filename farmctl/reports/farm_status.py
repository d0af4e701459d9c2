"""What `farmctl status` knows: each pod as the kubelet and as the proxy see it, side by side, and their disagreements.

One of them may be away: then the other's view stands alone, and says so. The JSON shape (``as_dict``) is a contract.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from farmctl.errors import StageError
from farmctl.reports import disagreements
from farmctl.reports.disagreements import Compared, Disagreement
from farmctl.testbeds.base import Pod, Readiness
from farmctl.testbeds.looking import Look, NodeSeen, Told
from farmctl.testbeds.overrides import Overrides

NONE = "<none>"
UNKNOWN = "<unknown>"
# Between two looks: longer than a pod is set aside after one fault (2 s), which is nothing to tell anybody.
LOOK_AGAIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    phase: str
    probe: str  # ready or not-ready: the readiness probe's verdict; <unknown> while the API server is away
    state: str  # the proxy's word, or <unknown>
    lease: str
    label: str
    restarts: int | None  # None, here and below: only the API server knows
    address: str
    node: str
    uid: str
    age_s: float | None
    endpoint_ready: bool | None
    differs_s: float | None

    def shown_state(self) -> str:
        """The probe's verdict of a pod that runs, else its phase."""
        return self.probe if self.phase == "Running" else self.phase

    def shown_lease(self, *, wide: bool) -> str:
        """The label if the caller gave one; of an id its end, which is what tells two apart."""
        if wide or self.lease == NONE:
            return self.lease
        return self.label if self.label != NONE else f"..{self.lease[-8:]}"


@dataclass(frozen=True, slots=True)
class FarmStatus:
    kind: str
    door: str
    admin: str
    rows: list[Row]
    proxy: dict[str, Any] | None  # its /status, None while it does not answer
    api_problem: str = ""  # why the control plane does not say, "" when it does
    api_remedy: str = ""
    nodes: tuple[NodeSeen, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    overrides: Overrides = field(default_factory=Overrides)

    def pods_ready(self) -> int | None:
        """None while the API server is away."""
        return None if self.api_problem else sum(row.probe == "ready" for row in self.rows)

    def endpoints_ready(self) -> int | None:
        return None if self.api_problem else sum(bool(row.endpoint_ready) for row in self.rows)

    def nodes_down(self) -> list[NodeSeen]:
        return [node for node in self.nodes if node.running is False or node.ready is False]

    def healthy(self) -> bool:
        """Whether everything answers, and nothing that was found lasts (see ``lasting``)."""
        stopped = any(node.running is False for node in self.nodes)
        return not (self.api_problem or self.proxy is None or stopped or self.disagreements)

    def gist(self) -> str:
        """All that a person would call a change: everything but ages."""
        pools = [(len(pool["held"]), len(pool["leases"])) for pool in _pools(self.proxy)]
        down = [node.name for node in self.nodes_down()]
        told = [(one.about, one.what) for one in self.disagreements]
        rows = [(row.name, row.shown_state(), row.state, row.lease, row.restarts) for row in self.rows]
        return f"{rows}{pools}{bool(self.api_problem)}{self.proxy is None}{down}{told}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "apiVersion": "farmctl/v1",
            "kind": "FarmStatus",
            "testbed": self.kind,
            "door": self.door,
            "admin": self.admin,
            "podsReady": self.pods_ready(),
            "endpointsReady": self.endpoints_ready(),
            "settings": {"agent": dict(self.overrides.agent), "proxy": dict(self.overrides.proxy)},
            "api": {"answers": not self.api_problem, "problem": self.api_problem},
            "nodes": [asdict(node) for node in self.nodes],
            "pods": [asdict(row) for row in self.rows],
            "disagreements": [
                {"about": one.about, "what": one.what, "forS": one.for_s, "remedy": one.remedy}
                for one in self.disagreements
            ],
            "proxy": self.proxy,
        }


async def lasting(look: Look, after_s: float) -> FarmStatus:
    """A look, and a second one when something was found that one look cannot tell from a moment's lag."""
    first = await read(look)
    if any(one.twice for one in first.disagreements):
        await asyncio.sleep(LOOK_AGAIN_S)
        return judged(await read(look), first.disagreements, after_s)
    return judged(first, (), after_s)


def judged(seen: FarmStatus, before: Iterable[Disagreement], after_s: float) -> FarmStatus:
    """``seen`` with only those disagreements that last; ``before``: what an earlier look found."""
    kept = disagreements.settled(seen.disagreements, before, after_s)
    return replace(seen, disagreements=tuple(kept))


async def read(look: Look) -> FarmStatus:
    """One look at everything at once, with all that differs just now. Raises StageError when the testbed is gone."""

    async def told() -> Told | StageError:
        try:
            return await look.told()
        except StageError as error:
            return error

    said, proxy, nodes = await asyncio.gather(told(), look.proxy(), look.nodes())
    seen = FarmStatus(
        look.kind, look.door, look.admin, [], proxy, nodes=tuple(nodes), overrides=look.overrides
    )
    labels = {each["id"]: each["label"] for pool in _pools(proxy) for each in pool["leases"]}
    if isinstance(said, StageError):
        rows = _proxy_rows(proxy, labels)
        return replace(seen, rows=rows, api_problem=str(said), api_remedy=said.hint)
    # Each side is indexed once: a farm may have thousands of pods. Of one in two pools the first pool's word counts.
    known = {one["uid"]: one for pool in reversed(_pools(proxy)) for one in pool["pods"]}
    endpoints = {one.pod: one for one in said.readiness}
    both = [
        compared(pod, endpoints.get(pod.name), known.get(pod.uid, {}))
        for pod in sorted(said.pods, key=lambda pod: pod.name)
    ]
    differ = disagreements.found(both, said.strays, proxy, look.kubectl)
    return replace(seen, rows=[_row(one, labels) for one in both], disagreements=tuple(differ))


def compared(pod: Pod, one: Readiness | None, known: Mapping[str, Any]) -> Compared:
    """The pod beside its endpoint and beside what the proxy knows of the same UID."""
    if one is None:
        return Compared(pod, pod.ready, endpoint_ready=False, known=known)
    return Compared(pod, one.pod_ready, one.endpoint_ready, one.differs_s, one.changed_s, known)


def _row(one: Compared, labels: Mapping[str, str]) -> Row:
    pod = one.pod
    return Row(
        name=pod.name,
        phase=pod.phase,
        probe="ready" if pod.ready else "not-ready",
        state=one.state or UNKNOWN,
        **_lease(one.known, labels),
        restarts=pod.restarts,
        address=pod.address,
        node=pod.node or NONE,
        uid=pod.uid,
        age_s=pod.age_s,
        endpoint_ready=one.endpoint_ready,
        differs_s=one.differs_s,
    )


def _proxy_rows(proxy: dict[str, Any] | None, labels: Mapping[str, str]) -> list[Row]:
    """The proxy's own view, where it is all that there is."""
    return [
        Row(
            name=known["name"] or known["address"],
            phase=UNKNOWN,
            probe=UNKNOWN,
            state=known["state"],
            **_lease(known, labels),
            restarts=None,
            address=known["address"],
            node=UNKNOWN,
            uid=known["uid"],
            age_s=None,
            endpoint_ready=None,
            differs_s=None,
        )
        for pool in _pools(proxy)
        for known in sorted(pool["pods"], key=lambda known: str(known["name"]))
    ]


def _lease(known: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    lease = known.get("lease") or ""
    return {"lease": lease or NONE, "label": labels.get(lease, "") or NONE}


def _pools(proxy: dict[str, Any] | None) -> list[dict[str, Any]]:
    return list((proxy or {}).get("pools", {}).values())
