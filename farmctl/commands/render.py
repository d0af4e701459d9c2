"""``farmctl render URL``: one page through the farm, to stdout or a file."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from farmctl.client import Rendered

FORMATS = ("html", "text", "png", "jpeg", "pdf", "json")
BINARY = {"png", "jpeg", "pdf"}


def render(
    url: Annotated[str, typer.Argument(help="An http or https page.", metavar="URL")],
    kind: Annotated[str, typer.Option("--format", help="html, text, png, jpeg, pdf or json.")] = "html",
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file (- is stdout).")
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds the page may take.")] = 30.0,
    hold_s: Annotated[float | None, typer.Option("--hold", min=0, help="Seconds to wait for a pod.")] = None,
    wait_until: Annotated[
        str, typer.Option("--wait-until", help="load, domcontentloaded, networkidle.")
    ] = "",
    wait_for: Annotated[str, typer.Option("--wait-for", help="A selector that must be there.")] = "",
    full_page: Annotated[bool, typer.Option("--full-page", help="The whole page in a picture.")] = False,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="Run a lost job again.")] = 3,
    door: Annotated[
        str, typer.Option("--door", envvar="FARMCTL_DOOR", help="default: the running farm")
    ] = "",
    token: Annotated[
        str, typer.Option("--token", envvar="FARMCTL_TOKEN", help="Where the farm has one.")
    ] = "",
    pool: Annotated[str, typer.Option("--pool", help="default: the farm's own.")] = "",
) -> None:
    """Render one page through the farm; the page goes to stdout, everything else to stderr."""
    if kind not in FORMATS:
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    to_stdout = out is None or str(out) == "-"
    if to_stdout and kind in BINARY and sys.stdout.isatty():
        raise typer.BadParameter(f"a {kind} is nothing for a terminal: give a file", param_hint="-o")
    options: dict[str, Any] = {
        "format": kind,
        "wait_until": wait_until,
        "wait_for": wait_for,
        "full_page": full_page,
    }
    told = {key: value for key, value in options.items() if value}
    lease_options = {"token": token, "pool": pool, "hold_s": hold_s, "label": "farmctl render"}
    answer = asyncio.run(_rendered(door, url, told, timeout_s, attempts, lease_options))
    if out is not None and not to_stdout:
        out.write_bytes(answer.body)
    else:
        sys.stdout.buffer.write(answer.body)
        sys.stdout.flush()
    print(
        f"{len(answer.body)} bytes of {answer.content_type} from {answer.pod}, held for {answer.waited_ms} ms",
        file=sys.stderr,
    )


async def _rendered(
    door: str,
    url: str,
    options: dict[str, Any],
    timeout_s: float,
    attempts: int,
    lease_options: dict[str, Any],
) -> "Rendered":
    from farmctl.client import render as ask
    from farmctl.client import run_job

    if not door:
        from farmctl.testbeds.finding import current

        door = (await current()).door

    async def job() -> "Rendered":
        return await ask(door, url, options=options, timeout_s=timeout_s, **lease_options)

    return await run_job(job, attempts=attempts)
