"""The verdict for people, on stdout: a table of all scenarios, and the evidence of those that deserve a look."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from farmctl.scenarios.results import Check, Fate, Report, Result, Verdict

COLOURS = {
    Verdict.PASSED: "green",
    Verdict.FAILED: "bold red",
    Verdict.NOT_STAGED: "yellow",
    Verdict.NOT_HERE: "dim",
    Verdict.INTERRUPTED: "yellow",
}
MARKS = {
    Verdict.PASSED: "✓",
    Verdict.FAILED: "✕",
    Verdict.NOT_STAGED: "?",
    Verdict.NOT_HERE: "-",
    Verdict.INTERRUPTED: "!",
}
IN_FULL = 3  # up to so many scenarios each is shown with its evidence


def show(report: Report, console: Console) -> None:
    for result in report.results:
        if len(report.results) <= IN_FULL or result.verdict in {Verdict.FAILED, Verdict.NOT_STAGED}:
            console.print(_evidence(result))
            console.print()
    console.print(_table(report))
    passed, count = report.count(Verdict.PASSED), len(report.results)
    worst = COLOURS[Verdict.PASSED] if report.exit_code == 0 else COLOURS[Verdict.FAILED]
    line = f"{passed} of {count} passed on {report.testbed} in {report.duration_s:.0f} s"
    not_here = report.count(Verdict.NOT_HERE)
    console.print(Text(line + (f"; {not_here} not on {report.testbed}" if not_here else ""), worst))


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("NAME", no_wrap=True)
    table.add_column("VERDICT", no_wrap=True)
    for title in ("CALLERS", "BLAST", "CHECKS", "SECONDS"):
        table.add_column(title, justify="right", no_wrap=True)
    for result in report.results:
        checks = [*result.checks, *result.invariants]
        table.add_row(
            result.name,
            Text(result.verdict, COLOURS[result.verdict]),
            str(len(result.fates)),
            str(result.blast_radius),
            f"{sum(check.passed for check in checks)}/{len(checks)}",
            f"{result.duration_s:.1f}",
        )
    return table


def _evidence(result: Result) -> RenderableType:
    head = Text.assemble(
        (f"{MARKS[result.verdict]} {result.name}", f"bold {COLOURS[result.verdict]}"), "  ", result.claim
    )
    parts: list[RenderableType] = [head]
    if result.reason:
        parts.append(Text(f"  {result.reason}", COLOURS[result.verdict]))
    grid = Table.grid(padding=(0, 1))
    for moment in result.timeline:
        if moment.kind in {"fault", "proof", "note"}:
            style = "red" if moment.kind == "fault" else "default"
            grid.add_row(
                f"  {moment.at_ms / 1000:7.2f} s", Text(moment.kind, "dim"), Text(moment.text, style)
            )
    parts += [grid, _callers(result)]
    parts += [_check(check) for check in [*result.checks, *result.invariants]]
    return Group(*parts)


def _callers(result: Result) -> Text:
    told = Text("  callers: ")
    for fate in result.fates:
        told.append(*_dot(fate))
    told.append(f"  blast radius {result.blast_radius} of {len(result.fates)}")
    for fate in [fate for fate in result.fates if fate.errors and not fate.on_purpose][:IN_FULL]:
        told.append(
            f"\n    {fate.caller}: {'; '.join(fate.errors)} -> {fate.outcome} after {fate.attempts} attempts"
        )
    if meant := sum(fate.on_purpose for fate in result.fates):
        told.append(f"\n    refused as the scenario meant, and not counted: {meant}")
    return told


def _dot(fate: Fate) -> tuple[str, str]:
    if fate.on_purpose:
        return "○", "dim"
    if fate.outcome in {"lost", "failed", "unfinished"}:
        return "●", "red"
    return "●", "yellow" if fate.errors else "green"


def _check(check: Check) -> Text:
    mark, style = ("✓", "green") if check.passed else ("✕", "bold red")
    line = Text.assemble("  ", (mark, style), f" {check.name}: ")
    line.append(check.got if check.passed else f"expected {check.expected}, got {check.got}", style)
    if not check.passed:
        for evidence in check.evidence:
            line.append(f"\n      {evidence}", "dim")
    return line
