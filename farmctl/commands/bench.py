"""``farmctl bench``: measure the farm against HAProxy and a bare Chrome, or write the page from a measurement."""

from pathlib import Path
from typing import Annotated

import typer


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="lease, relay, grant, fleet, slices, job: all when none is named; kind: the farm that is up here.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short run that proves the benchmarks, no figures.")
    ] = False,
    rounds: Annotated[
        int, typer.Option("--rounds", min=0, help="Interleaved rounds (0: 5, or 2 when quick).")
    ] = 0,
    output: Annotated[str, typer.Option("-o", "--output", help="table or json.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", help="Write the JSON here as well.")] = None,
    docs: Annotated[
        Path | None, typer.Option("--docs", help="Measure nothing: write the page FILE.md beside FILE.json.")
    ] = None,
) -> None:
    """Measure what the farm costs. A missed target is reported and fails nothing; exit 3 when something was not measured."""
    from rich.console import Console

    from farmctl.bench import docs as pages
    from farmctl.bench import suite, tables
    from farmctl.errors import StageError

    if output not in {"table", "json"}:
        raise typer.BadParameter(f"{output!r} is not table or json", param_hint="-o")
    if docs is not None:
        print(pages.write(docs))
        return
    progress = Console(stderr=True)
    with progress.status("") as status:
        say = status.update if progress.is_terminal else progress.print
        run = suite.run(suite.chosen(names or []), rounds=rounds, quick=quick, say=say)
    if out is not None:
        out.write_text(run.as_json())
    if output == "json":
        print(run.as_json(), end="")
    else:
        tables.show(run, tables.console())
    if run.unstaged:
        raise StageError("not measured: " + "; ".join(f"{name}: {why}" for name, why in run.unstaged.items()))
