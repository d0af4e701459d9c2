"""Progress as a picture that redraws itself on a terminal: every caller's state, the latest moments, verdicts so far."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from farmctl.reports.summary import COLOURS, MARKS
from farmctl.scenarios.results import Check, Fate, Moment, Result

LATEST = 9
STATES = {  # a caller's state or outcome: sign and style
    "waiting": ("·", "dim"),
    "session": ("▶", "bold blue"),
    "backoff": ("↻", "yellow"),
    "done": ("●", "green"),
    "done after an error": ("●", "yellow"),
    "left": ("○", "dim"),
    "lost": ("✕", "bold red"),
    "refused": ("✕", "magenta"),
    "failed": ("!", "bold red"),
    "unfinished": ("·", "dim"),
}
KINDS = {"stage": "dim", "fault": "bold red", "proof": "magenta", "check": "default", "note": "yellow"}


class Picture:
    """A Listener that keeps what there is to show; ``Live`` draws it."""

    def __init__(self) -> None:
        self._head = Text("starting")
        self._moments: deque[Moment] = deque(maxlen=LATEST)
        self._fates: dict[str, Fate] = {}
        self._results: list[Result] = []

    def began(self, name: str, claim: str, number: int, total: int) -> None:
        self._head = Text.assemble((f"{number}/{total} ", "dim"), (name, "bold"), "  ", (claim, "default"))
        self._moments.clear()
        self._fates.clear()

    def moment(self, moment: Moment) -> None:
        self._moments.append(moment)

    def caller(self, fate: Fate) -> None:
        self._fates[fate.caller] = fate

    def checked(self, check: Check) -> None:
        pass  # the timeline has it

    def ended(self, result: Result) -> None:
        self._results.append(result)

    def __rich__(self) -> Group:
        return Group(*self._verdicts(), Panel(Group(self._head, self._callers(), self._latest())))

    def _verdicts(self) -> list[Text]:
        return [
            Text.assemble(
                (f"{MARKS[result.verdict]} {result.verdict:11}", COLOURS[result.verdict]),
                f"{result.name:24}",
                (f"{result.duration_s:6.1f} s", "dim"),
            )
            for result in self._results
        ]

    def _callers(self) -> Text:
        drawn = Text()
        many = len(self._fates) > 60
        for fate in self._fates.values():
            sign, style = STATES[state_of(fate)]
            # A hard space keeps sign and name on one line.
            drawn.append(sign if many else f"{sign}\N{NO-BREAK SPACE}{fate.caller}  ", style)
        return drawn

    def _latest(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for moment in self._moments:
            at = Text(f"{moment.at_ms / 1000:7.2f} s", "dim")
            table.add_row(
                at, Text(moment.text, KINDS.get(moment.kind, "default"), overflow="ellipsis", no_wrap=True)
            )
        return table


def state_of(fate: Fate) -> str:
    """Return what a caller is doing or how it ended; a caller with an open span is still at it."""
    if fate.spans and fate.spans[-1].to_ms is None:
        return fate.spans[-1].state
    return "done after an error" if fate.outcome == "done" and fate.errors else str(fate.outcome)


@contextmanager
def shown(console: Console) -> Iterator[Picture]:
    """Draw on ``console`` (stderr) for the length of the block, and leave nothing behind."""
    picture = Picture()
    with Live(picture, console=console, refresh_per_second=4, transient=True):
        yield picture
