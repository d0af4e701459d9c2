"""``farmctl down``: end the farm and remove all of it; of nothing is fine. From an existing cluster only what was
installed there goes.
"""

from typing import Annotated

import typer


def down(
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
) -> None:
    """End the farm: no process, port or file of it is left. Reports written to a path of yours stay."""
    import asyncio

    from farmctl.reports.steps import Steps
    from farmctl.testbeds.kind.cluster.state import KindFolder
    from farmctl.testbeds.kind.down import Ended
    from farmctl.testbeds.kind.down import take_down as take_kind_down
    from farmctl.testbeds.local.down import take_down
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.state_folders import default_path

    kind, gone = KindFolder(), Ended()
    if kind.record.exists():
        with kind.held(), Steps(quiet=quiet) as say:
            gone = take_kind_down(kind, say)
        if gone.what:
            typer.echo(f"{gone.what} deleted")
    folder = StateFolder(default_path())
    ended = asyncio.run(take_down(folder))
    if ended.was_up:
        typer.echo("farm/local deleted")
    elif ended.found or ended.killed:
        typer.echo(f"farm/local deleted: what a crash left ({ended.killed} processes)")
    elif not gone.what:
        typer.echo("no farm is up: nothing to delete", err=True)
