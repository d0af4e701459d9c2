"""Which code answers POST /render inside a lease."""

from dataclasses import dataclass, field

from farmagent.http_head import as_json
from farmagent.sessions import Renderer
from farmagent.settings import Settings


@dataclass(frozen=True, slots=True)
class NotBuilt:
    status: int = 501
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = as_json({"reason": "not-built", "detail": "this agent cannot render yet"})


async def _not_built(chrome_ws_url: str, body: bytes) -> NotBuilt:  # noqa: ARG001
    return NotBuilt()


def renderer(_config: Settings) -> Renderer:
    return _not_built
