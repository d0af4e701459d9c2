"""What a crowd of callers is told to do; crosses to its process as JSON."""

import json
from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Plan:
    """``step`` is how far a caller goes: connect, version, refused, lease, render or stream."""

    door: tuple[str, int]
    step: str = "lease"
    seconds: float = 5.0
    rate: float = 100.0  # arrivals a second, when ``together`` is 0
    together: int = 0
    even: bool = False  # arrivals at equal distances in place of Poisson's
    body: int = 0  # bytes of the caller's own: the POST's body, or the message to be echoed
    trips: int = 0  # round trips of ``body`` bytes on an upgraded connection
    session_ms: float = 0.0  # how long the session lasts; its spread is uniform by +-``vary``
    vary: float = 0.0
    wishes: dict[str, float] = field(default_factory=dict)  # for the fake pod, see heads.WORK
    warm_s: float = 0.0  # the first seconds are not counted
    seed: int = 1

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        words = json.loads(text)
        words["door"] = tuple(words["door"])
        return cls(**words)
