"""``farmctl scenario NAME...``: break the running farm on purpose and show who notices.

It brings nothing up: without a farm it ends with exit code 3 and says how to get one.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from farmctl.scenarios.catalogue import Scenario
    from farmctl.scenarios.results import Report
    from farmctl.scenarios.timeline import Listener

OUTPUTS = ("text", "json", "name")


def scenario(
    names: Annotated[list[str] | None, typer.Argument(help="Scenarios to run.", metavar="NAME...")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run every scenario this testbed can.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the scenarios and what they claim.")] = False,
    output: Annotated[
        str, typer.Option("-o", "--output", help="text, json (or name, with --list).")
    ] = "text",
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML to this file.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write one HTML file.")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Break the running farm on purpose, and show with numbers who notices.

    Exit codes: 0 all passed, 1 a claim is broken, 3 a fault was not staged (or no farm is up), 130 interrupted.
    """
    if output not in OUTPUTS:
        raise typer.BadParameter(f"{output!r} is none of {', '.join(OUTPUTS)}", param_hint="-o")
    if listed:
        _list(output)
        return
    if bool(names) == everything:
        raise typer.BadParameter("name scenarios, or say --all (see --list)", param_hint="NAME...")
    from farmctl.scenarios import catalogue

    chosen = catalogue.find_all(catalogue.NAMES if everything else names or ())
    for path in (junit, report):
        if path is not None and not path.parent.is_dir():
            raise typer.BadParameter(f"there is no folder {path.parent}", param_hint=str(path))
    done = asyncio.run(_watched(chosen, quiet=quiet))
    _write(done, junit, report)
    _print(done, output)
    raise typer.Exit(done.exit_code)


def _list(output: str) -> None:
    from farmctl.scenarios import catalogue

    found = catalogue.find_all()
    if output == "json":
        import json

        print(
            json.dumps([{"name": each.name, "claim": each.claim, "needs": [*each.needs]} for each in found])
        )
        return
    width = max(len(each.name) for each in found)
    for each in found:
        print(each.name if output == "name" else f"{each.name:{width}}  {each.claim}")


async def _watched(chosen: "Sequence[Scenario]", *, quiet: bool) -> "Report":
    from rich.console import Console

    from farmctl.reports.lines import Lines
    from farmctl.reports.live import shown
    from farmctl.scenarios.timeline import Silent

    console = Console(stderr=True)
    if quiet:
        return await _run(chosen, Silent())
    if not console.is_terminal:
        return await _run(chosen, Lines())
    with shown(console) as picture:
        return await _run(chosen, picture)


class Interrupt:
    """The first Ctrl-C (or SIGTERM) ends the scenario and restores the farm; a later one gives up on restoring."""

    # A terminal signals the whole process group, and a launcher such as `uv run` passes its own signal on.
    SAME_S = 1.0

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self._last = float("-inf")

    def __call__(self) -> None:
        now = self._task.get_loop().time()
        if now - self._last > self.SAME_S:
            self._task.cancel()
        self._last = now


async def _run(chosen: "Sequence[Scenario]", listener: "Listener") -> "Report":
    import signal

    from farmctl.scenarios.drivers import Driver
    from farmctl.scenarios.engine import Engine
    from farmctl.testbeds.finding import current

    testbed = await current()
    task = asyncio.current_task()
    assert task is not None
    interrupt = Interrupt(task)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    try:
        async with Driver() as driver:
            await driver.started()  # now, so that no caller's time has its start in it
            return await Engine(testbed, listener, driver).run(chosen)
    except asyncio.CancelledError:
        raise typer.Exit(130) from None


def _write(done: "Report", junit: Path | None, report: Path | None) -> None:
    if junit is not None:
        from farmctl.reports.junit import as_junit

        junit.write_bytes(as_junit(done))
    if report is not None:
        from farmctl.reports.html import as_html

        report.write_text(as_html(done), encoding="utf-8")


def _print(done: "Report", output: str) -> None:
    if output == "json":
        from farmctl.reports.json_files import as_json

        print(as_json(done).decode(), end="")
        return
    from rich.console import Console

    from farmctl.reports.summary import show

    show(done, Console(highlight=False))
