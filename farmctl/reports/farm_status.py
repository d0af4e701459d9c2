"""What `farmctl status` knows: each pod as the kubelet and as the proxy see it, side by side, and their quarrels.

The JSON shape (``as_dict``) is a contract; the table is for people.
"""

from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
from rich.table import Table
from rich.text import Text

from farmctl.testbeds.base import Pod, Readiness, Testbed

NONE = "<none>"
UNKNOWN = "<unknown>"
ASK_LIMIT_S = 2.0
COLOURS = {"free": "green", "leased": "cyan", "dialling": "cyan", "recycling": "yellow", "set-aside": "red"}


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    phase: str
    probe: str  # ready or not-ready: the readiness probe's verdict
    state: str  # the proxy's word, or <unknown>
    lease: str
    label: str
    restarts: int
    address: str
    node: str
    uid: str
    age_s: float
    endpoint_ready: bool
    differs_s: float

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

    def disagreements(self, after_s: float) -> list[Row]:
        return [row for row in self.rows if row.differs_s > after_s]

    def gist(self) -> str:
        """All that a person would call a change: everything but ages."""
        pools = [(len(pool["held"]), len(pool["leases"])) for pool in _pools(self.proxy)]
        return f"{[(row.name, row.shown_state(), row.state, row.lease, row.restarts) for row in self.rows]}{pools}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "apiVersion": "farmctl/v1",
            "kind": "FarmStatus",
            "testbed": self.kind,
            "door": self.door,
            "admin": self.admin,
            "podsReady": sum(row.probe == "ready" for row in self.rows),
            "endpointsReady": sum(row.endpoint_ready for row in self.rows),
            "pods": [asdict(row) for row in self.rows],
            "proxy": self.proxy,
        }


async def read(testbed: Testbed) -> FarmStatus:
    """Raises StageError when the testbed is gone."""
    pods, readiness = await testbed.pods(), await testbed.readiness()
    proxy = await _proxy(testbed.admin)
    return combine(testbed.kind, testbed.door, testbed.admin, pods, readiness, proxy)


def combine(
    kind: str,
    door: str,
    admin: str,
    pods: list[Pod],
    readiness: list[Readiness],
    proxy: dict[str, Any] | None,
) -> FarmStatus:
    known = {pod["uid"]: pod for pool in _pools(proxy) for pod in pool["pods"]}
    labels = {lease["id"]: lease["label"] for pool in _pools(proxy) for lease in pool["leases"]}
    compared = {one.pod: one for one in readiness}
    rows = [
        _row(pod, known.get(pod.uid, {}), labels, compared.get(pod.name))
        for pod in sorted(pods, key=lambda pod: pod.name)
    ]
    return FarmStatus(kind, door, admin, rows, proxy)


def _row(pod: Pod, known: dict[str, Any], labels: dict[str, str], compared: Readiness | None) -> Row:
    lease = known.get("lease")
    return Row(
        name=pod.name,
        phase=pod.phase,
        probe="ready" if pod.ready else "not-ready",
        state=known.get("state", UNKNOWN),
        lease=lease or NONE,
        label=labels.get(lease or "", "") or NONE,
        restarts=pod.restarts,
        address=pod.address,
        node=pod.node or NONE,
        uid=pod.uid,
        age_s=pod.age_s,
        endpoint_ready=compared.endpoint_ready if compared else False,
        differs_s=compared.differs_s if compared else 0.0,
    )


def _pools(proxy: dict[str, Any] | None) -> list[dict[str, Any]]:
    return list((proxy or {}).get("pools", {}).values())


async def _proxy(admin: str) -> dict[str, Any] | None:
    limit = aiohttp.ClientTimeout(total=ASK_LIMIT_S)
    try:
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(f"{admin}/status") as answer:
            status: dict[str, Any] | None = None
            if answer.status == 200:
                status = await answer.json(content_type=None)
            return status
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None


def table(seen: FarmStatus, *, wide: bool) -> Table:
    """People's view; ``wide`` adds what scripts would rather take from JSON."""
    shown = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    columns = ["NAME", "STATE", "PROXY", "LEASE", "RESTARTS", "ADDRESS", "AGE"]
    if wide:
        columns[-1:] = ["LABEL", "NODE", "UID", "AGE"]
    for column in columns:
        shown.add_column(column, no_wrap=True)
    for row in seen.rows:
        cells = [row.name, row.shown_state(), row.state, row.shown_lease(wide=wide), str(row.restarts)]
        cells += [row.address, row.label, row.node, row.uid] if wide else [row.address]
        texts = [Text(cell) for cell in [*cells, age(row.age_s)]]
        texts[2].stylize(COLOURS.get(row.state, ""))
        shown.add_row(*texts)
    return shown


def lines(seen: FarmStatus, disagree_after_s: float) -> list[Text]:
    """What stands below the table."""
    ready = sum(row.probe == "ready" for row in seen.rows)
    listed = sum(row.endpoint_ready for row in seen.rows)
    out = [Text(f"testbed {seen.kind}, door {seen.door}, pods Ready: {ready}, endpoints ready: {listed}")]
    if seen.proxy is None:
        out.append(Text(f"the proxy does not answer at {seen.admin}", style="red"))
    for name, pool in (seen.proxy or {}).get("pools", {}).items():
        held, leases = len(pool["held"]), len(pool["leases"])
        out.append(Text(f"pool {name}: {leases} leased, {held} held, demand {pool['demand']:g}"))
    for row in seen.disagreements(disagree_after_s):
        endpoint = "ready" if row.endpoint_ready else "not-ready"
        out.append(
            Text(f"{row.name}: pod {row.probe}, endpoint {endpoint}, for {age(row.differs_s)}", style="red")
        )
    return out


def age(seconds: float) -> str:
    """As kubectl prints it: the one or two largest units."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m{whole % 60}s" if whole < 600 else f"{whole // 60}m"
    if whole < 172_800:
        return f"{whole // 3600}h"
    return f"{whole // 86_400}d"
