"""A picture of a page, or of all of it: its lazy pictures fetched first, and taken in tiles where it is large.

The rule: what is below the fold is on the picture as a reader who scrolled would have seen it. Chrome draws through
textures; one that is larger than the GPU's limit starts again from its top, in silence, so no tile is larger than
what every GPU takes (the software one, of a pod, takes 8,192 px too).
"""

import asyncio
import base64
import io
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec

from farmagent.render.answers import Reason
from farmagent.render.pages import Page
from farmagent.render.requests import RenderRequest, check_pixels

if TYPE_CHECKING:
    from PIL import Image

TILE_PX = 8192
JPEG_QUALITY = 80  # Chrome's own
PNG_LEVEL = 3  # 25 million pixels of photographs in 1.2 CPU-seconds instead of 2.9, for 7 % more bytes

# Lazy pictures and frames hold no load event up. Eager, they are fetched at once; decode() waits for the bytes too.
_LAZY = """(async (all) => {
  const roots = [document], lazy = [];
  for (const root of roots) {
    for (const node of root.querySelectorAll("*")) {
      if (node.shadowRoot) roots.push(node.shadowRoot);
      if (node.loading === "lazy") lazy.push(node);
    }
  }
  const near = (box) => box.top < innerHeight && box.bottom > 0 && box.left < innerWidth && box.right > 0;
  const wanted = lazy.filter((node) => all || near(node.getBoundingClientRect()));
  await Promise.all(wanted.map((node) => {
    const fresh = node.contentDocument?.URL === "about:blank" && node.src && node.src !== "about:blank";
    const loaded = fresh ? new Promise((resolve) => node.addEventListener("load", resolve, {once: true})) : 0;
    node.loading = "eager";
    return node.decode ? node.decode().catch(() => 0) : loaded;
  }));
  return wanted.length;
})(%s)"""


class Tile(msgspec.Struct, frozen=True):
    """A part of the picture: in CSS pixels of the page, and where its device pixels go."""

    x: float
    y: float
    width: float
    height: float
    left: int
    top: int


async def load_lazy(page: Page, request: RenderRequest, *, everywhere: bool) -> None:
    """Fetch the lazy pictures and frames of the page (of the viewport), as far as the job waits for pictures at all."""
    if request.wait_until in ("commit", "domcontentloaded"):
        return
    page.step = "waiting for lazy pictures"
    if await page.ask(_LAZY % ("true" if everywhere else "false")):
        await page.settle(request.wait_until)


async def picture(page: Page, request: RenderRequest) -> bytes:
    """PNG or JPEG. RenderError 413 for a full page over its limits."""
    await load_lazy(page, request, everywhere=request.full_page)
    view = request.viewport
    x, y, width, height = 0.0, 0.0, float(view.width), float(view.height)
    large = max(width, height) * view.scale > TILE_PX
    if request.full_page or large:
        page.step = "measuring the page"
        metrics = await page.send("Page.getLayoutMetrics")
        if request.full_page:
            size = metrics["cssContentSize"]
            width, height = max(width, math.ceil(size["width"])), max(height, math.ceil(size["height"]))
            check_pixels(width, height, view.scale, Reason.TOO_LARGE)
        else:
            x, y = metrics["cssVisualViewport"]["pageX"], metrics["cssVisualViewport"]["pageY"]
    page.step = "taking the picture"
    if not (request.full_page or large):
        return await _shot(page, {"format": request.format})
    parts = tiles(x, y, width, height, view.scale)
    if len(parts) == 1:
        return await _shot(page, {"format": request.format, **_clip(parts[0])})
    size_px = (round(width * view.scale), round(height * view.scale))
    return await _put_together(page, parts, size_px, request.format)


async def _put_together(page: Page, parts: Sequence[Tile], size_px: tuple[int, int], kind: str) -> bytes:
    from PIL import Image  # 35 ms and 6 MB that an agent without large pictures does not pay

    canvas = Image.new("RGB", size_px)
    for part in parts:
        shot = await _shot(page, {"format": "png", "optimizeForSpeed": True, **_clip(part)})
        await asyncio.to_thread(_paste, canvas, shot, part)
    return await asyncio.to_thread(_encoded, canvas, kind)


def tiles(x: float, y: float, width: float, height: float, scale: float) -> Sequence[Tile]:
    """Cut where a CSS pixel ends on a device pixel, so that no seam is seen."""
    whole = Fraction(scale).limit_denominator(1000).denominator
    step = max(whole, math.floor(TILE_PX / scale / whole) * whole)
    return [
        Tile(
            x=x + left,
            y=y + top,
            width=min(step, width - left),
            height=min(step, height - top),
            left=round(left * scale),
            top=round(top * scale),
        )
        for top in range(0, math.ceil(height), step)
        for left in range(0, math.ceil(width), step)
    ]


def _clip(part: Tile) -> dict[str, Any]:
    clip = {"x": part.x, "y": part.y, "width": part.width, "height": part.height, "scale": 1}
    return {"captureBeyondViewport": True, "clip": clip}


async def _shot(page: Page, params: dict[str, Any]) -> bytes:
    return base64.b64decode((await page.send("Page.captureScreenshot", params))["data"])


def _paste(canvas: "Image.Image", shot: bytes, part: Tile) -> None:
    from PIL import Image

    with Image.open(io.BytesIO(shot), formats=["PNG"]) as tile:
        canvas.paste(tile, (part.left, part.top))


def _encoded(canvas: "Image.Image", kind: str) -> bytes:
    into = io.BytesIO()
    canvas.save(into, kind, quality=JPEG_QUALITY, compress_level=PNG_LEVEL)
    return into.getvalue()
