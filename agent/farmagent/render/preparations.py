"""What a page is told before it goes anywhere: the CDP commands that a request's options stand for."""

from collections.abc import Mapping
from typing import Any

from farmagent.render import documents
from farmagent.render.requests import RenderRequest

Command = tuple[str, Mapping[str, Any]]
_RESOURCE_TYPES = {"xhr": "XHR", "texttrack": "TextTrack", "eventsource": "EventSource"}


def preparations(request: RenderRequest) -> list[Command]:
    """All commands for the page itself, in order."""
    view = request.viewport
    metrics = {"width": view.width, "height": view.height, "deviceScaleFactor": view.scale, "mobile": False}
    commands: list[Command] = [
        ("Page.enable", {}),
        *common(request),
        ("Emulation.setDeviceMetricsOverride", metrics),
        ("Emulation.setScrollbarsHidden", {"hidden": True}),
    ]
    if request.format == "pdf":
        commands.append(("Fetch.enable", documents.LOOK_AT_ANSWERS))
        # A page made to be printed prints itself at load, and Chrome does not print one page twice at a time.
        commands.append(("Page.addScriptToEvaluateOnNewDocument", {"source": "print = () => {}"}))
    return commands


def blocked(request: RenderRequest) -> list[dict[str, str]]:
    """Patterns for Fetch.enable of the resource types that the page may not load."""
    return [{"resourceType": _RESOURCE_TYPES.get(word, word.capitalize())} for word in request.block]


def common(request: RenderRequest) -> list[Command]:
    """What the page and each of its frames and workers need; a target that lacks a domain ignores it."""
    # No bodies are kept: the job reads none, and they would double the page's memory.
    commands: list[Command] = [("Network.enable", {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})]
    if request.headers:
        commands.append(("Network.setExtraHTTPHeaders", {"headers": request.headers}))
    if request.user_agent:
        commands.append(("Emulation.setUserAgentOverride", {"userAgent": request.user_agent}))
    if request.headers or request.user_agent or request.wait_until == "networkidle":
        # Frames of other sites and workers are targets of their own: without this they would send other
        # headers than the page, and their requests would not count as in flight.
        attach = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
        commands.append(("Target.setAutoAttach", attach))
    return commands
