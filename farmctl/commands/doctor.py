"""``farmctl doctor``: what this machine has and lacks for a farm, each lack with the command that mends it."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from farmctl.machine import Finding


class Testbed(StrEnum):
    local = "local"
    kind = "kind"


def doctor(
    output: Annotated[str, typer.Option("-o", "--output", help="text or json.")] = "text",
    testbed: Annotated[
        Testbed, typer.Option(help="The one that exit code 3 is about; kind is examined as `up` would.")
    ] = Testbed.local,
    registry: Annotated[
        str, typer.Option("--registry", help="host[:port] of a container registry to try to reach.")
    ] = "",
) -> None:
    """Show what this machine has for a farm and what it lacks; exit 3 when the testbed cannot run."""
    from farmctl import machine

    if output not in {"text", "json"}:
        raise typer.BadParameter(f"{output!r} is not text or json", param_hint="-o")
    findings = machine.examine(registry=registry)
    if testbed is Testbed.kind:
        from farmctl.testbeds.kind.cluster import doctor_checks

        findings += doctor_checks.findings()
    if output == "json":
        print(json.dumps([finding.as_dict() for finding in findings]))
    else:
        _show(findings)
    if any(finding.verdict == "missing" and testbed.value in finding.needed_by for finding in findings):
        raise typer.Exit(3)


def _show(findings: "list[Finding]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warn": "yellow", "missing": "red"}
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        line = Text(f"{finding.verdict:8}", style=colours[finding.verdict])
        line.append(f"{finding.name:{width}}  {finding.found}", style="default")
        if finding.verdict != "ok":
            line.append(f"  [{' and '.join(finding.needed_by)}]", style="dim")
        console.print(line)
        if finding.mend:
            console.print(Text(f"        {'':{width}}  mend: {finding.mend}", style="dim"))
