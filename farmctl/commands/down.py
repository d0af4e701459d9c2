"""``farmctl down``: end the farm and remove all of it; of nothing is fine."""

import typer


def down() -> None:
    """End the farm: no process, port or file of it is left. Reports written to a path of yours stay."""
    import asyncio

    from farmctl.testbeds.local.ending import take_down
    from farmctl.testbeds.local.state import StateFolder, default_path

    folder = StateFolder(default_path())
    ended = asyncio.run(take_down(folder))
    if ended.was_up:
        typer.echo("farm/local deleted")
    elif ended.found or ended.killed:
        typer.echo(f"farm/local deleted: what a crash left ({ended.killed} processes)")
    else:
        typer.echo("no farm is up: nothing to delete", err=True)
