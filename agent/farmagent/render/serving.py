"""Answers POST /render inside a lease: the render job under this pod's target policy."""

from farmagent.chrome import cdp
from farmagent.errors import ChromeLostError, SettingsError
from farmagent.lease.sessions import Renderer
from farmagent.render import RenderAnswer, TargetPolicy, render
from farmagent.settings import Settings


def renderer(settings: Settings) -> Renderer:
    """Raises SettingsError for targets that are no networks."""
    try:
        policy = TargetPolicy.parse(settings.private_targets)
    except ValueError as error:
        raise SettingsError([f"FARMAGENT_PRIVATE_TARGETS: {error}"]) from error

    async def answer(chrome_ws_url: str, body: bytes) -> RenderAnswer:
        try:
            return await render(chrome_ws_url, body, policy=policy)
        except cdp.CdpLost as error:
            raise ChromeLostError(str(error)) from error

    return answer
