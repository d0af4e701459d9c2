"""``farmctl version``: which farmctl, and which proxy, agent and contract come with it."""

import json
from importlib.metadata import version as installed
from typing import Annotated

import typer

PARTS = {"farmctl": "farmctl", "proxy": "farm-proxy", "agent": "farm-agent", "wire": "farm-wire"}


def version(
    output: Annotated[str, typer.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """Print the versions of farmctl and of the parts it starts."""
    versions = {part: installed(distribution) for part, distribution in PARTS.items()}
    if output == "json":
        print(json.dumps(versions))
    elif output == "text":
        print("\n".join(f"{part} {number}" for part, number in versions.items()))
    else:
        raise typer.BadParameter(f"{output!r} is not text or json", param_hint="-o")
