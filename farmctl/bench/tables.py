"""A run's figures as tables for a terminal: one row a figure, one column a subject. All targets stand
together at the end.
"""

from rich import box
from rich.console import Console
from rich.table import Table

from farmctl.bench.figures import Spread
from farmctl.bench.results import Profile, Run, Section

SHOWN = 12  # lines of a profile; the JSON and the page have all
WIDE = 150  # columns where no terminal says how many


def console() -> Console:
    """Return a console for stdout that does not squeeze a table into a pipe."""
    out = Console()
    return out if out.is_terminal else Console(width=WIDE)


def show(run: Run, console: Console) -> None:
    """Print all sections."""
    for section in run.sections:
        console.print(_figures(section))
        for profile in section.profiles:
            console.print(_profile(profile))
        for note in section.notes:
            console.print(f"  {note}")
    console.print(_targets(run))


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - len(str(int(abs(value)))) + 1)}f}" if abs(value) >= 1 else f"{value:.3f}"


def spread(one: Spread) -> str:
    """Median, with the least and most where there is more than one round."""
    return (
        number(one.median)
        if one.rounds < 2
        else f"{number(one.median)} ({number(one.low)}-{number(one.high)})"
    )


def subjects(section: Section) -> list[str]:
    """All subjects of a section in the order of their first row."""
    return list(dict.fromkeys(name for row in section.rows for name in row.spreads))


def _figures(section: Section) -> Table:
    title = f"{section.name}: {section.title} (median, spread of {section.rounds})"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("figure")
    table.add_column("unit")
    names = subjects(section)
    for name in names:
        table.add_column(name, justify="right")
    for row in section.rows:
        cells = (spread(row.spreads[name]) if name in row.spreads else "" for name in names)
        table.add_row(row.figure, row.unit, *cells)
    return table


def _targets(run: Run) -> Table:
    table = Table(title="targets", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("benchmark", "target", "asked", "measured", ""):
        table.add_column(heading)
    for section in run.sections:
        for verdict in section.verdicts:
            word = "[green]met[/]" if verdict.met else "[red]MISSED[/]"
            asked = f"{'at least' if verdict.at_least else 'at most'} {number(verdict.limit)} {verdict.unit}"
            value = f"{number(verdict.value)} {verdict.unit}"
            table.add_row(section.name, verdict.target, asked, value, f"{word} {verdict.note}")
    return table


def _profile(profile: Profile) -> Table:
    title = f"where the time of the {profile.subject} goes ({profile.how})"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for what, share in profile.lines[:SHOWN]:
        table.add_row(what, f"{share:.1%}")
    return table
