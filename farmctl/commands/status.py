"""``farmctl status``: the pods as the control plane and the proxy see them, and where the two disagree."""

from collections import deque
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
WATCH_CLUSTER_S = 1.5  # each picture is three calls of kubectl


def status(
    output: Annotated[
        Output, typer.Option("-o", "--output", help="The contract is json and yaml.")
    ] = Output.table,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show it live until Ctrl-C.")] = False,
    disagree_after: Annotated[
        float, typer.Option(min=0, help="Seconds that a disagreement may last before it is a fault.")
    ] = 30.0,
) -> None:
    """Show the farm: pods, leases, callers held, and where API server and proxy disagree.

    Exit 3 when none is up, when API server, proxy or a node is down, or when a disagreement lasts.
    """
    import asyncio

    seen = asyncio.run(_watch(output, disagree_after) if watch else _once(output, disagree_after))
    if not seen.healthy():
        raise typer.Exit(3)


async def _once(output: Output, disagree_after_s: float) -> "FarmStatus":
    from farmctl.reports import farm_status
    from farmctl.testbeds.finding import look

    seen = await farm_status.lasting(await look(), disagree_after_s)
    if output is Output.json:
        import json

        print(json.dumps(seen.as_dict()))
    elif output is Output.yaml:
        import yaml

        print(yaml.safe_dump(seen.as_dict(), sort_keys=False), end="")
    elif output is Output.name:
        print("\n".join(f"pod/{row.name}" for row in seen.rows))
    else:
        _console().print(_picture(seen, output))
    return seen


async def _watch(output: Output, disagree_after_s: float) -> "FarmStatus":
    import asyncio

    from rich.live import Live

    from farmctl.errors import UsageError
    from farmctl.reports import farm_status
    from farmctl.testbeds.finding import look

    if output not in {Output.table, Output.wide}:
        raise UsageError(f"-w shows a table, not {output.value}", hint="farmctl status -w")
    farm, console, shown = await look(), _console(live=True), ""
    pause_s = WATCH_S if farm.kind == "local" else WATCH_CLUSTER_S
    # What one look cannot tell from a moment's lag has to stand in an earlier picture too.
    frames: deque[FarmStatus] = deque(maxlen=max(1, round(farm_status.LOOK_AGAIN_S / pause_s)))
    with Live(console=console, auto_refresh=False) as live:
        while True:
            now = await farm_status.read(farm)
            before = frames[0].disagreements if frames else ()
            seen = farm_status.judged(now, before, disagree_after_s)
            frames.append(now)
            picture = _picture(seen, output)
            if console.is_terminal:
                live.update(picture, refresh=True)
            elif shown != (shown := seen.gist()):
                console.print(picture)  # a pipe gets each change once, not a picture twice a second
            await asyncio.sleep(pause_s)


def _console(*, live: bool = False) -> "Console":
    from rich.console import Console

    console = Console(highlight=False)
    if not (live and console.is_terminal):
        console.width = 250  # nothing is cut off: a terminal wraps, and a remedy can be copied whole
    return console


def _picture(seen: "FarmStatus", output: Output) -> Any:
    from rich.console import Group

    from farmctl.reports import status_tables

    return Group(status_tables.table(seen, wide=output is Output.wide), *status_tables.lines(seen))
