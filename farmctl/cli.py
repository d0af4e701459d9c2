"""The command line: finds the verb's module, runs it, turns errors into a message, a hint and an exit code.

Exit codes: 0 ok, 1 a claim or command failed, 2 usage, 3 testbed or environment at fault, 130 interrupted.
Only the verb that was asked for is imported, so that ``--help`` and completion stay quick.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import typer

from farmctl.errors import FarmctlError

# In the order of `--help`: the path of a newcomer, then the rest. Each is farmctl/commands/VERB.py.
VERBS = (
    "up",
    "status",
    "scenario",
    "down",
    "scale",
    "render",
    "logs",
    "images",
    "manifests",
    "doctor",
    "bench",
    "version",
    "completion",
)
EPILOG = "Exit codes: 0 ok, 1 failed, 2 usage, 3 testbed or environment at fault, 130 interrupted."


def build(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """Return an app with these verbs; a verb that does not exist raises ModuleNotFoundError."""
    app = typer.Typer(
        name="farmctl",
        help=(
            "Bring up a farm of leased headless Chromes, break it on purpose in every way production does, "
            "and see with numbers whether a lost machine costs only its own jobs."
        ),
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in verbs:
        function = getattr(importlib.import_module(f"farmctl.commands.{verb}"), verb)
        app.command(verb)(function)
    return app


def _root() -> None:
    # A callback keeps the verb in the usage line even when only one verb is registered.
    pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``farmctl ARGV`` and return its exit code; the console script exits with it."""
    words = list(sys.argv[1:] if argv is None else argv)
    named = next((word for word in words if not word.startswith("-")), None)
    app = build([named] if named in VERBS and "_FARMCTL_COMPLETE" not in os.environ else VERBS)
    # Typer turns Ctrl-C into exit code 130 and usage errors into 2 by itself.
    try:
        app(words, prog_name="farmctl")
    except FarmctlError as error:
        return report(error)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of stdout is gone (`farmctl status | head`): no fault of ours, and nothing more to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def report(error: FarmctlError) -> int:
    """Print what happened and what to do next on stderr; return the error's exit code."""
    print(f"farmctl: {error}", file=sys.stderr)
    if error.hint:
        print(f"  try: {error.hint}", file=sys.stderr)
    return error.exit_code
