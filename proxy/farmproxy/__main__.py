"""``python -m farmproxy``: settings from the environment, exit code 2 for wrong ones, 3 for an address that is taken.

``--check`` only reads them: 0 when the proxy would start with them.
"""

import asyncio
import os
import sys

from farmproxy import __version__
from farmproxy.config.settings import Settings, SettingsError, help_text
from farmproxy.observe import gc_tuning, logs


def main(arguments: list[str]) -> int:
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(help_text())
        return 0
    if arguments == ["--version"]:
        sys.stdout.write(f"farmproxy {__version__}\n")
        return 0
    if arguments not in ([], ["--check"]):
        sys.stderr.write(
            f"farmproxy takes no arguments but --help, --version and --check, not {arguments[0]!r}\n"
        )
        return 2
    try:
        settings = Settings.from_env(os.environ)
        return 0 if arguments else _run(settings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"farmproxy cannot start: {error}; is another program on this address?\n")
        return 3


def _run(settings: Settings) -> int:
    from farmproxy.lifecycle import serve

    log = logs.configure()
    gc_tuning.settle()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serve(settings, log))
    return uvloop.run(serve(settings, log))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
