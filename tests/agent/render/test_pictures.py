"""Full pages: everything that is on them is on the picture, at its place, however high they are."""

import io
import json
from urllib.parse import quote

import pytest
from farmagent.render import TargetPolicy, render
from farmagent.render.pictures import TILE_PX, tiles
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

OPEN = TargetPolicy(everything=True)
SECTIONS = 12


def raw(pages, markup: str, host: str = "127.0.0.1") -> str:
    return pages.url(f"/raw?html={quote(markup)}", host)


def colour(band: int) -> tuple[int, int, int]:
    return (band * 37) % 256, (band * 91) % 256, (band * 13 + band // 7) % 256


def banded(count: int) -> str:
    script = (
        f"for (let i = 0; i < {count}; i++) document.write(`<p style='background:rgb("
        "${(i * 37) % 256},${(i * 91) % 256},${(i * 13 + (i / 7 | 0)) % 256})'></p>`)"
    )
    return f"<style>body, p {{margin: 0}} p {{height: 100px}}</style><script>{script}</script>"


@pytest.mark.chrome
@pytest.mark.parametrize(
    ("count", "view", "kind"),
    [
        (360, {"width": 640}, "png"),
        (190, {"width": 640, "scale": 2}, "png"),
        (90, {"width": 640, "scale": 1.37}, "png"),
        (150, {"width": 640}, "jpeg"),
        (30, {"width": 8192, "scale": 1.2}, "png"),
    ],
)
async def test_each_band_of_a_large_page_has_its_own_colour_at_its_own_place(
    chrome_with_textures, pages, count, view, kind
):
    job = {
        "url": raw(pages, banded(count)),
        "format": kind,
        "full_page": True,
        "viewport": view,
        "timeout_s": 60,
    }
    answer = await render(chrome_with_textures, json.dumps(job).encode(), policy=OPEN)
    assert answer.status == 200, answer.body
    scale = view.get("scale", 1)
    with Image.open(io.BytesIO(answer.body)) as picture:
        assert picture.size == (round(view["width"] * scale), round(count * 100 * scale))
        wrong = [
            (band, seen)
            for band in range(count)
            for x in (1, picture.width - 2)
            if not like(seen := picture.getpixel((x, round((band * 100 + 50) * scale))), colour(band), kind)
        ]
    assert wrong == []


def like(seen, wanted, kind: str) -> bool:
    room = 0 if kind == "png" else 6
    return all(abs(one - other) <= room for one, other in zip(seen, wanted, strict=True))


@pytest.mark.chrome
async def test_a_large_viewport_is_whole_too(chrome_with_textures, pages):
    """And shows where the page has been scrolled to, as a small one does."""
    job = {
        "url": raw(pages, banded(100)), "format": "png", "viewport": {"width": 300, "height": 6000, "scale": 1.5},
        "script": "scrollTo(0, 1000)",
    }  # fmt: skip
    answer = await render(chrome_with_textures, json.dumps(job).encode(), policy=OPEN)
    with Image.open(io.BytesIO(answer.body)) as picture:
        assert picture.size == (450, 9000)
        seen = [picture.getpixel((5, band * 150 + 75)) for band in range(60)]
    assert seen == [colour(band + 10) for band in range(60)]


@given(
    st.integers(1, 40_000),
    st.integers(1, 40_000),
    st.sampled_from([0.1, 0.75, 1, 1.25, 1.37, 1.5, 2, 3.999, 4]),
)
def test_tiles_cover_the_picture_once_and_none_is_too_large(width, height, scale):
    parts = tiles(0, 0, width, height, scale)
    assert sum(part.width * part.height for part in parts) == width * height
    for part in parts:
        assert max(part.width, part.height) * scale <= TILE_PX
        assert (part.left, part.top) == (pytest.approx(part.x * scale), pytest.approx(part.y * scale))


def lazy_page() -> str:
    return "".join(
        f"<p style='margin:0;height:2500px'><img loading=LAZY src=/lazy/{section} width=90 height=90></p>"
        for section in range(SECTIONS)
    )


@pytest.mark.chrome
@pytest.mark.parametrize("wait_until", ["load", "networkidle"])
@pytest.mark.parametrize("kind", ["png", "jpeg", "pdf"])
async def test_pictures_below_the_fold_are_there(rendering, pages, kind, wait_until):
    answer = await rendering(
        raw(pages, f"<body style='margin:0'>{lazy_page()}"),
        format=kind,
        full_page=True,
        viewport={"width": 300},
        wait_until=wait_until,
    )
    assert answer.status == 200, answer.body
    assert len({path for path in pages.paths("127.0.0.1") if path.startswith("lazy/")}) == SECTIONS
    if kind != "pdf":
        with Image.open(io.BytesIO(answer.body)) as picture:
            seen = [picture.getpixel((45, section * 2500 + 45)) for section in range(SECTIONS)]
        assert [one[1] > 240 and max(one[0], one[2]) < 16 for one in seen] == [True] * SECTIONS, seen


@pytest.mark.chrome
async def test_lazy_frames_and_shadow_trees_count_too(rendering, pages):
    frame = pages.url("/lazy/frame", "127.0.0.2")
    markup = (
        f"<p style='height:9000px'><p id=p></p><iframe loading=lazy src='{frame}'></iframe><script>"
        "p.attachShadow({mode: 'open'}).innerHTML = '<img loading=lazy src=/lazy/shadow>'</script>"
    )
    answer = await rendering(raw(pages, markup), format="png", full_page=True)
    assert answer.status == 200, answer.body
    assert "lazy/shadow" in pages.paths("127.0.0.1")
    assert "lazy/frame" in pages.paths("127.0.0.2")


@pytest.mark.chrome
async def test_what_the_picture_does_not_show_is_not_fetched(rendering, pages):
    """A viewport's picture has the lazy pictures of the viewport, and html none for its own sake."""
    for kind in ("png", "html"):
        assert (await rendering(raw(pages, lazy_page()), format=kind)).status == 200
    asked = {path for path in pages.paths("127.0.0.1") if path.startswith("lazy/")}
    assert "lazy/0" in asked
    assert "lazy/11" not in asked


@pytest.mark.chrome
async def test_whoever_does_not_wait_for_pictures_does_not_wait_for_lazy_ones(rendering, pages):
    markup = "<p style='height:9000px'><img loading=lazy src=/hang>"
    answer = await rendering(raw(pages, markup), format="png", full_page=True, wait_until="domcontentloaded")
    assert answer.status == 200, answer.body


@pytest.mark.chrome
@pytest.mark.timeout(300)
async def test_a_high_page_of_large_pictures_five_times_over(rendering, pages):
    """Twenty decoded pictures and a page of 25 million pixels each time: no crash, nothing blank."""
    strips = "".join(f"<img src=/noise?{index} style='display:block'>" for index in range(20))
    for _ in range(5):
        answer = await rendering(
            raw(pages, f"<body style='margin:0'>{strips}"),
            format="png",
            full_page=True,
            viewport={"width": 1280},
            timeout_s=60,
        )
        assert answer.status == 200, answer.body
        with Image.open(io.BytesIO(answer.body)) as picture:
            assert picture.size == (1280, 20_000)
            centre = [
                picture.crop((600, y, 680, y + 80)).convert("L").getextrema()
                for y in range(460, 20_000, 1000)
            ]
        assert all(high - low > 100 for low, high in centre), centre
