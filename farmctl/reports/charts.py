"""Numbers for the HTML report's picture: callers by time, one row each, faults as lines across all of them."""

from dataclasses import dataclass

from farmctl.scenarios.results import Fate, Outcome, Result

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1000, 132, 12, 26, 22
MANY = 40  # beyond so many callers rows get thin and lose their names
STEPS_MS = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000)
TICKS = 10  # at most
UNHURT = (Outcome.DONE, Outcome.LEFT)


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    state: str
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    text: str
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Chart:
    width: int
    height: float
    left: int
    top: int
    floor: float  # where the rows end
    bars: list[Bar]
    names: list[Mark]  # of callers
    hurt: list[bool]  # by caller: it did not get what it came for, and the scenario did not mean that
    errors: list[Mark]
    meant: list[Mark]  # refusals that the scenario meant
    faults: list[Mark]
    ticks: list[Mark]


def chart(result: Result) -> Chart | None:
    """Return the picture of a result, or None when there were no callers."""
    fates = [fate for fate in result.fates if fate.spans]
    if not fates:
        return None
    row = 18.0 if len(fates) <= MANY else 5.0
    ends = [span.to_ms or span.from_ms for fate in fates for span in fate.spans]
    faults = [moment for moment in result.timeline if moment.kind == "fault"]
    end_ms = max([*ends, *(moment.at_ms for moment in faults), 1]) * 1.02
    scale = (WIDTH - LEFT - RIGHT) / end_ms
    floor = TOP + row * len(fates)
    rows = list(enumerate(fates))
    return Chart(
        width=WIDTH,
        height=floor + BOTTOM,
        left=LEFT,
        top=TOP,
        floor=floor,
        bars=[bar for number, fate in enumerate(fates) for bar in _bars(fate, number, row, scale, end_ms)],
        names=[
            Mark(LEFT - 8, fate.caller, TOP + row * number + row * 0.68)
            for number, fate in enumerate(fates)
            if len(fates) <= MANY
        ],
        hurt=[fate.outcome not in UNHURT and not fate.on_purpose for fate in fates],
        errors=[
            mark for number, fate in rows if not fate.on_purpose for mark in _errors(fate, number, row, scale)
        ],
        meant=[
            mark for number, fate in rows if fate.on_purpose for mark in _errors(fate, number, row, scale)
        ],
        faults=[Mark(_x(moment.at_ms, scale), moment.text) for moment in faults],
        ticks=_ticks(end_ms, scale),
    )


def _bars(fate: Fate, number: int, row: float, scale: float, end_ms: float) -> list[Bar]:
    thickness = row * (0.62 if row > 10 else 0.8)
    y = TOP + row * number + (row - thickness) / 2
    bars = []
    for span in fate.spans:
        to_ms = end_ms if span.to_ms is None else span.to_ms
        on = f" on {span.pod.split('/')[1] if '/' in span.pod else span.pod}" if span.pod else ""
        title = f"{fate.caller}: {span.state}{on}, {span.from_ms}-{round(to_ms)} ms, {fate.outcome}"
        width = max(1.0, (to_ms - span.from_ms) * scale)
        bars.append(
            Bar(_x(span.from_ms, scale), round(y, 1), round(width, 1), round(thickness, 1), span.state, title)
        )
    return bars


def _errors(fate: Fate, number: int, row: float, scale: float) -> list[Mark]:
    """An error ends an attempt: it stands where a backoff begins, the last one where the caller ends."""
    times = [span.from_ms for span in fate.spans if span.state == "backoff"]
    last = fate.spans[-1]
    if len(times) < len(fate.errors):
        times.append(last.to_ms if last.to_ms is not None else last.from_ms)
    y = TOP + row * number + row / 2
    return [Mark(_x(at, scale), error, round(y, 1)) for at, error in zip(times, fate.errors, strict=False)]


def _ticks(end_ms: float, scale: float) -> list[Mark]:
    step = next((step for step in STEPS_MS if end_ms / step <= TICKS), STEPS_MS[-1])
    return [Mark(_x(at, scale), f"{at / 1000:g} s") for at in range(0, int(end_ms) + 1, step)]


def _x(at_ms: float, scale: float) -> float:
    return round(LEFT + at_ms * scale, 1)
