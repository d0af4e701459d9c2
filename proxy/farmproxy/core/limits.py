"""The numbers the core decides by, one set a pool. All times are seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    hold_limit: int = 10_000  # callers held at once
    hold_bytes: int = 64 * 1024 * 1024  # sum of CallerArrived.cost of the held
    set_aside_s: float = 2.0
    set_aside_max_s: float = 60.0
    recycle_s: float = 30.0  # after a lease, how long the agent's word is waited for
    ask_places: int = 2048  # pods believed busy elsewhere that are asked at once: a connection each
    ask_sample: int = 16  # pods set aside that are asked at once while callers are held
