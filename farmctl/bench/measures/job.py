"""A page job through the farm against the same job on a bare Chrome, in interleaved pairs.

The job is what a caller's Playwright does once it is connected; connecting and recycling are told apart.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farmctl.bench.figures import Spread
from farmctl.bench.load import job_pages
from farmctl.bench.load.chromes import RealFarm, bare_chrome, real_farm
from farmctl.bench.results import Row, Section, Verdict
from farmctl.bench.stage import Stage, about

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

PAIRS, QUICK_PAIRS = 30, 3
TARGET = 1.05
BOOTSTRAPS = 5_000
WIDTH = 0.95
SETTLE_S = 1.0  # a Chrome that has just answered still works on its start
PAGES = 3  # a job opens so many pages, one after another


@dataclass(slots=True)
class Times:
    """Seconds of one job."""

    connect_s: float
    job_s: float
    recycle_s: float = 0.0


def measure(stage: Stage) -> Section:
    """Run the pairs and return the section."""
    from playwright.sync_api import sync_playwright

    pairs = QUICK_PAIRS if stage.quick else PAIRS
    section = Section(
        "job",
        "A page job through the farm and on a bare Chrome",
        about(__doc__),
        pairs,
        {"pairs": pairs, "pages_a_job": PAGES, "pictures_a_page": job_pages.PICTURES},
    )
    farm_times: list[Times] = []
    bare_times: list[Times] = []
    with job_pages.served() as url, sync_playwright() as playwright, real_farm() as farm:
        for pair in range(-1, pairs):  # the first pair warms the page server and the disk's cache, uncounted
            stage.say(f"job: pair {max(pair, 0) + 1} of {pairs}")
            through, bare = _pair(playwright, farm, url, farm_first=pair % 2 == 0)
            if pair >= 0:
                farm_times.append(through)
                bare_times.append(bare)
    _rows(section, farm_times, bare_times)
    return section


def _pair(playwright: "Playwright", farm: RealFarm, url: str, *, farm_first: bool) -> tuple[Times, Times]:
    """One job on each. Both browsers are fresh, started and at rest before either job: neither the farm's recycling
    nor the bare Chrome's start runs beside a job.
    """
    with bare_chrome(farm.chrome) as endpoint:
        through = _through_farm(playwright, farm, url) if farm_first else None
        time.sleep(SETTLE_S)
        bare = page_job(playwright, endpoint, url)
        return through or _through_farm(playwright, farm, url), bare


def _through_farm(playwright: "Playwright", farm: RealFarm, url: str) -> Times:
    time.sleep(SETTLE_S)
    times = page_job(playwright, farm.door, url)
    times.recycle_s = farm.wait_free()
    return times


def page_job(playwright: "Playwright", endpoint: str, url: str) -> Times:
    """Connect, work on some pages, disconnect; raises Playwright's errors."""
    began = time.monotonic()
    browser = playwright.chromium.connect_over_cdp(endpoint)
    connected = time.monotonic()
    context = browser.new_context()
    for _ in range(PAGES):
        page = context.new_page()
        page.goto(url, wait_until="load")
        cells = page.evaluate(
            "[...document.querySelectorAll('td')].reduce((sum, td) => sum + +td.textContent, 0)"
        )
        page.evaluate("sum => { document.getElementById('sum').textContent = sum }", cells)
        assert page.inner_text("#sum") == str(cells)
        page.screenshot()
        page.close()
    context.close()
    done = time.monotonic()
    browser.close()
    return Times(connected - began, done - connected)


def _rows(section: Section, farm: Sequence[Times], bare: Sequence[Times]) -> None:
    ratios = [ours.job_s / theirs.job_s for ours, theirs in zip(farm, bare, strict=True)]
    both = {"farm": farm, "bare Chrome": bare}
    section.row("the job", "s", {name: [one.job_s for one in times] for name, times in both.items()})
    section.row("connect", "s", {name: [one.connect_s for one in times] for name, times in both.items()})
    section.row("recycle (not in the job)", "s", {"farm": [one.recycle_s for one in farm]})
    median = statistics.median(ratios)
    low, high = interval(ratios)
    section.rows.append(
        Row(
            "median ratio of the pairs, 95 % interval", "x", {"ratio": Spread(median, low, high, len(ratios))}
        )
    )
    section.verdicts = [
        Verdict(
            "a job through the farm against a bare Chrome",
            "x",
            TARGET,
            median,
            note=f"{low:.3f} to {high:.3f}",
        )
    ]


def interval(ratios: Sequence[float], *, seed: int = 1) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median (Efron), with a fixed seed."""
    source = random.Random(seed)
    medians = sorted(statistics.median(source.choices(ratios, k=len(ratios))) for _ in range(BOOTSTRAPS))
    cut = round((1 - WIDTH) / 2 * BOOTSTRAPS)
    return medians[cut], medians[-1 - cut]
