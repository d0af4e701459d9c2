"""Where the control plane and the proxy tell different stories of one farm, each with what to do about it.

Some last for moments in a healthy farm: readiness lags by a probe's period, a watch by its delivery. So each carries
since when it stands, and whoever asks says from which age on it is a fault. What nothing dates is looked at twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farmctl.testbeds.base import Pod
from farmctl.testbeds.looking import Stray

# The API server sends a bookmark each minute: a watch that heard nothing for longer is none.
WATCH_SILENT_S = 90.0
NOT_FREE = {"unready": "not free", "set-aside": "set aside"}
IN_LINE = "farmctl logs proxy"
CONTROLLERS = "component=kube-controller-manager"


@dataclass(frozen=True, slots=True)
class Compared:
    """One pod as the control plane tells of it, beside what the proxy knows of the same UID ({}: nothing)."""

    pod: Pod
    pod_ready: bool
    endpoint_ready: bool
    differs_s: float = 0.0
    changed_s: float | None = None
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The proxy's word, "" when it does not know the pod."""
        return str(self.known.get("state", ""))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """``about`` is a pod's name or an address; ``for_s`` None: nothing dates it.

    ``twice``: it may be over in a moment whatever its date, so one look is not enough.
    """

    about: str
    what: str
    remedy: str
    for_s: float | None = None
    twice: bool = True

    def lasts(self, after_s: float, earlier: Iterable["Disagreement"]) -> bool:
        """Whether it is older than ``after_s``, and stood in an ``earlier`` look where one look is not enough."""
        if self.for_s is not None and self.for_s <= after_s:
            return False
        return not self.twice or any((one.about, one.what) == (self.about, self.what) for one in earlier)


def found(
    pods: Sequence[Compared], strays: Iterable[Stray], proxy: Mapping[str, Any] | None, kubectl: str
) -> list[Disagreement]:
    """All that differ now. ``proxy`` is its /status, None while it is away; ``kubectl`` how a person calls it."""
    out = [differ for one in pods for differ in _slices(one, kubectl)]
    out += [_stray(stray, kubectl) for stray in strays]
    if proxy is None:
        return out
    out += [differ for one in pods for differ in _proxy(one, kubectl)]
    listed, stray_addresses = {one.pod.uid for one in pods}, {stray.address for stray in strays}
    for known in _known(proxy):
        if (
            known["uid"] not in listed
            and known["address"].rpartition(":")[0].strip("[]") not in stray_addresses
        ):
            what = f"the proxy has it as {known['state']}, the API server knows no such pod"
            out.append(Disagreement(known["name"] or known["address"], what, IN_LINE))
    if (age_s := proxy.get("watch_age_s", 0.0)) > WATCH_SILENT_S:
        what = "the API server answers here, and the proxy's watch hears nothing from it"
        remedy = f"{IN_LINE}; then {kubectl} rollout restart deployment/proxy" if kubectl else IN_LINE
        out.append(Disagreement("watch", what, remedy, age_s, twice=False))
    return out


def settled(
    now: Iterable[Disagreement], before: Iterable[Disagreement], after_s: float
) -> list[Disagreement]:
    """Those that last, after an earlier look at the same farm."""
    earlier = list(before)
    return [one for one in now if one.lasts(after_s, earlier)]


def _slices(one: Compared, kubectl: str) -> Iterator[Disagreement]:
    """The kubelet's word against the EndpointSlice's: after trouble in the control plane they may differ for hours."""
    if one.pod_ready == one.endpoint_ready:
        return
    own, endpoint = ("ready", "not-ready") if one.pod_ready else ("not-ready", "ready")
    remedy = "farmctl up"
    if kubectl:
        remedy = (
            f"does the slices' controller run? {kubectl} get pods -n kube-system -l {CONTROLLERS}; "
            f"it does: {kubectl} delete pod NAME"
        )
    yield Disagreement(one.pod.name, f"pod {own}, endpoint {endpoint}", remedy, one.differs_s, twice=False)


def _stray(stray: Stray, kubectl: str) -> Disagreement:
    what = f"slice {stray.slice} says that it is ready, and it is no pod's address"
    remedy = f"{kubectl} delete endpointslice {stray.slice}" + (
        " (its controller makes a right one)" if stray.managed else ""
    )
    return Disagreement(stray.address, what, remedy)


def _proxy(one: Compared, kubectl: str) -> Iterator[Disagreement]:
    """The API's word, where pod and slice agree, against the proxy's."""
    both_ready = one.pod_ready and one.endpoint_ready
    delete = f"{kubectl} delete pod {one.pod.name}" if kubectl else "farmctl up"
    if one.pod.phase == "Terminating" and one.state == "free" and not one.known.get("terminating"):
        what = "terminating, and free for the proxy: whoever gets it may lose the job"
        yield Disagreement(one.pod.name, what, IN_LINE)
    elif both_ready and not one.state:
        yield Disagreement(one.pod.name, "ready, and the proxy does not know it", IN_LINE, one.changed_s)
    elif both_ready and one.state in NOT_FREE:
        what = f"ready, and {NOT_FREE[one.state]} for the proxy: it does not get through, or is refused"
        yield Disagreement(one.pod.name, what, f"farmctl logs {one.pod.name}; {delete}", one.changed_s)
    elif one.pod.phase == "Failed" and one.state == "free":
        yield Disagreement(one.pod.name, "failed, and free for the proxy: a dial is lost on it", delete)


def _known(proxy: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for pool in proxy.get("pools", {}).values():
        yield from pool["pods"]
