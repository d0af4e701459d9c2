"""What a scenario can see and break, whatever the testbed: the interface every kind of testbed implements.

A verb returns when the thing asked for has really happened (a kill: the processes are gone), raises
``NotStaged`` where this testbed or machine cannot do it, and is undone by ``restore``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from farmctl.errors import StageError
from farmctl.testbeds.overrides import Overrides


class NotStaged(StageError):
    """The fault did not really happen, or cannot be made here (exit code 3)."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod as the control plane sees it. ``ready`` is the probe's verdict, so it lags as probes do."""

    name: str
    uid: str
    address: str  # host:port of the agent
    phase: Literal["Pending", "Running", "Terminating", "Failed"]
    ready: bool
    restarts: int
    age_s: float
    node: str = ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """The pod's own condition beside what its endpoint says; ``differs_s`` since when they disagree, else 0.

    ``changed_s`` is the age of the pod's condition, None where the testbed does not date it.
    """

    pod: str
    pod_ready: bool
    endpoint_ready: bool
    differs_s: float
    changed_s: float | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The autoscaler's settings: pods = ceil(demand / target), within [low, high]; AverageValue semantics."""

    low: int
    high: int
    target: float = 1.0
    sync_s: float = 15.0
    scale_down_wait_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What `farmctl up` asks for, and what ``restore`` goes back to."""

    pods: int = 4
    probe_period_s: float = 1.0
    probe_threshold: int = 1
    slice_delay_s: float = 0.0  # how late a readiness change reaches the EndpointSlices
    scaling: Scaling | None = None
    proxy_env: dict[str, str] = field(default_factory=dict)
    agent_env: dict[str, str] = field(default_factory=dict)

    @property
    def overrides(self) -> Overrides:
        return Overrides(self.agent_env, self.proxy_env)


class Testbed(Protocol):
    """The farm under test. ``kind`` is printed in every report; ``cannot`` names verbs that raise NotStaged
    on this testbed, with the reason, so that a scenario can be listed as "not on local".
    """

    kind: str
    namespace: str
    door: str  # http://host:port
    admin: str
    pages_host: (
        str  # an address of this machine that the pods' browsers reach: scenarios serve their pages there
    )
    cannot: dict[str, str]

    async def setup(self) -> Setup: ...
    async def pods(self) -> list[Pod]: ...
    async def readiness(self) -> list[Readiness]: ...
    async def listens(self, pod: Pod) -> bool:
        """Whether anything accepts a connection at the pod's address, asked from where that address is known."""
        ...

    async def pod_logs_since(self, mark: float) -> dict[str, list[str]]:
        """Log lines (JSON, one event each) of every pod alive or dead since wall-clock ``mark``."""
        ...

    async def proxy_log_since(self, mark: float) -> list[str]:
        """Log lines (JSON, one event each) of every proxy process alive or dead since wall-clock ``mark``."""
        ...

    async def kill(self, pod: str, *, grace_s: float = 0.0) -> float:
        """0: SIGKILL of everything in the pod at once. Else SIGTERM, SIGKILL after grace_s; returns at once.

        Returns the wall-clock time just before the signal: on a cluster the way there takes seconds.
        """
        ...

    async def kill_chrome(self, pod: str) -> None: ...
    async def freeze(self, pod: str, *, what: Literal["pod", "chrome"] = "pod") -> None: ...
    async def thaw(self, pod: str) -> None: ...
    async def cut_off(self, pod: str) -> None:
        """Packets to and from the pod vanish (no FIN, no RST)."""
        ...

    async def mend(self, pod: str) -> None: ...
    async def add_stale_endpoint(self) -> str:
        """A ready endpoint under the Service's label at an address where nothing listens, until ``restore``; returns it."""
        ...

    async def set_probes(
        self, *, period_s: float, threshold: int = 1, slice_delay_s: float = 0.0
    ) -> None: ...
    async def make_pods_unready(self, starting_s: float | None) -> None:
        """New pods stay not ready for this long (None: for ever) although their agent runs; until ``restore``."""
        ...

    async def scale(self, pods: int) -> None: ...
    async def roll_out(self) -> None:
        """A new template for all pods, rolled out as `farmctl up` does it. Returns when every pod that takes callers
        is new; the old ones may still finish their sessions.
        """
        ...

    async def autoscale(self, scaling: Scaling | None) -> None: ...
    async def restart_proxy(self, *, how: Literal["kill", "term"] = "term", wait: bool = True) -> None:
        """End the proxy (SIGKILL or SIGTERM) and start a new one. With ``wait`` the new one is ready."""
        ...

    async def set_proxy_env(self, env: dict[str, str]) -> None:
        """Restart the proxy with these settings over the setup's own; until ``restore``."""
        ...

    async def stop_api(self) -> None: ...
    async def start_api(self) -> None: ...
    async def reclaim_node(self, node: str, *, notice_s: float) -> Sequence[str]:
        """The node's pods are told to go, and the node is lost ``notice_s`` later; returns the pods' names at once."""
        ...

    async def node_is_lost(self, node: str) -> bool:
        """Whether the machine itself is gone, by its own word and not the control plane's."""
        ...

    async def return_nodes(self) -> Sequence[str]:
        """Bring reclaimed nodes back; returns the names of those that were gone, when pods can be put there again."""
        ...

    async def restore(self) -> None:
        """Undo every fault, back to the setup: pods, probes, slices, proxy, API server, scaling. Waits until
        the farm is whole (all pods free, nothing held).
        """
        ...


class NoFarm(StageError):
    """Nothing answers on the control socket."""

    def __init__(self, *, crashed: bool = False) -> None:
        if crashed:
            super().__init__(
                "the farm's supervisor is gone: it was killed or crashed", hint="farmctl up mends it"
            )
        else:
            super().__init__("no farm is up", hint="farmctl up")
