"""``farmctl completion SHELL``: print the shell's completion script, as kubectl and kind do."""

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell to complete in.")]) -> None:
    """Print a completion script; add `source <(farmctl completion bash)` to the shell's start file."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # its public home

    print(get_completion_script(prog_name="farmctl", complete_var="_FARMCTL_COMPLETE", shell=shell.value))
