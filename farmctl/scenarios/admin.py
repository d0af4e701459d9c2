"""The proxy's own account of the farm: /status and /metrics of the admin port, read as often as needed."""

import re
from dataclasses import dataclass, field

import aiohttp
import msgspec
from farmwire import paths

ANSWER_LIMIT_S = 5.0
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class PodStatus(msgspec.Struct):
    uid: str
    name: str
    address: str
    state: str
    terminating: bool
    lease: str | None
    faults: int
    set_aside_s: float


class HeldStatus(msgspec.Struct):
    id: str
    label: str
    waited_s: float
    left_s: float
    dials: int


class LeaseStatus(msgspec.Struct):
    id: str
    label: str
    pod: str
    age_s: float
    left_s: float


class PoolStatus(msgspec.Struct):
    service: str = ""
    demand: int = 0
    pods: list[PodStatus] = []
    held: list[HeldStatus] = []
    leases: list[LeaseStatus] = []

    def in_state(self, state: str) -> int:
        return sum(pod.state == state for pod in self.pods)

    def pod_of(self, label: str) -> str:
        """Return the name of the pod leased under ``label``, or "" when there is none."""
        return next((lease.pod for lease in self.leases if lease.label == label), "")


class Status(msgspec.Struct):
    version: str
    draining: bool
    watch_age_s: float | None
    pools: dict[str, PoolStatus]


@dataclass(slots=True)
class Metrics:
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    @classmethod
    def parsed(cls, text: str) -> "Metrics":
        found = (_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
        return cls([(hit[1], dict(_LABEL.findall(hit[2] or "")), float(hit[3])) for hit in found if hit])

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of ``name`` that carry all of ``labels``."""
        wanted = labels.items()
        return sum(value for found, has, value in self.samples if found == name and wanted <= has.items())


class Admin:
    def __init__(self, base: str, session: aiohttp.ClientSession, pool: str = "default") -> None:
        self._base = base.rstrip("/")
        self._session = session
        self._pool = pool

    async def status(self) -> Status:
        return msgspec.json.decode(await self._get(paths.STATUS), type=Status)

    async def pool(self) -> PoolStatus:
        return (await self.status()).pools.get(self._pool) or PoolStatus()

    async def metrics(self) -> Metrics:
        return Metrics.parsed((await self._get(paths.METRICS)).decode())

    async def _get(self, path: str) -> bytes:
        limit = aiohttp.ClientTimeout(total=ANSWER_LIMIT_S)
        async with self._session.get(self._base + path, timeout=limit) as answer:
            answer.raise_for_status()
            return await answer.read()
