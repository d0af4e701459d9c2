"""One render job from request to answer."""

from farmagent.render.answers import RenderAnswer, RenderError, refusal
from farmagent.render.requests import parse
from farmagent.render.targets import TargetPolicy


async def render(chrome_ws_url: str, body: bytes, *, policy: TargetPolicy) -> RenderAnswer:
    """Render as ``body`` (JSON) asks, in the Chrome at ``chrome_ws_url``.

    Never raises for what the caller or the page did; raises ``cdp.CdpLost`` when Chrome itself is gone.
    """
    try:
        parse(body, policy)
    except RenderError as error:
        return refusal(error)
    raise NotImplementedError
