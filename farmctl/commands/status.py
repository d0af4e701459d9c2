"""``farmctl status``: the pods as the control plane and the proxy see them, and where the two disagree."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from farmctl.reports.farm_status import FarmStatus


class Output(StrEnum):
    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    name = "name"


WATCH_S = 0.5


def status(
    output: Annotated[
        Output, typer.Option("-o", "--output", help="The contract is json and yaml.")
    ] = Output.table,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show it live until Ctrl-C.")] = False,
    disagree_after: Annotated[
        float, typer.Option(min=0, help="Seconds that pod and endpoint may disagree before it is a fault.")
    ] = 30.0,
) -> None:
    """Show the farm: pods, leases, callers held. Exit 3 when none is up, or pods and endpoints disagree for long."""
    import asyncio

    seen = asyncio.run(_watch(output, disagree_after) if watch else _once(output, disagree_after))
    if seen.disagreements(disagree_after):
        raise typer.Exit(3)


async def _once(output: Output, disagree_after_s: float) -> "FarmStatus":
    from farmctl.reports import farm_status
    from farmctl.testbeds.finding import current

    seen = await farm_status.read(await current())
    if output is Output.json:
        import json

        print(json.dumps(seen.as_dict()))
    elif output is Output.yaml:
        import yaml

        print(yaml.safe_dump(seen.as_dict(), sort_keys=False), end="")
    elif output is Output.name:
        print("\n".join(f"pod/{row.name}" for row in seen.rows))
    else:
        _console().print(_picture(seen, output, disagree_after_s))
    return seen


async def _watch(output: Output, disagree_after_s: float) -> "FarmStatus":
    import asyncio

    from rich.live import Live

    from farmctl.errors import UsageError
    from farmctl.reports import farm_status
    from farmctl.testbeds.finding import current

    if output not in {Output.table, Output.wide}:
        raise UsageError(f"-w shows a table, not {output.value}", hint="farmctl status -w")
    testbed, console, shown = await current(), _console(), ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            seen = await farm_status.read(testbed)
            picture = _picture(seen, output, disagree_after_s)
            if console.is_terminal:
                live.update(picture, refresh=True)
            elif shown != (shown := seen.gist()):
                console.print(picture)  # a pipe gets each change once, not a picture twice a second
            await asyncio.sleep(WATCH_S)


def _console() -> "Console":
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 250  # a pipe has no width: nothing is cut off
    return console


def _picture(seen: "FarmStatus", output: Output, disagree_after_s: float) -> Any:
    from rich.console import Group

    from farmctl.reports import farm_status

    return Group(
        farm_status.table(seen, wide=output is Output.wide), *farm_status.lines(seen, disagree_after_s)
    )
