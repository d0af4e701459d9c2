"""Finds a Chromium to run: the one named, else the one installed, else Playwright's own download.

Ubuntu's ``chromium-browser`` is a stub that asks for snap, and Debian's ``/usr/bin/chromium`` is a shell wrapper
that adds flags of its own: the binary itself is wanted.
"""

import os
import shutil
from pathlib import Path

from farmctl.errors import StageError

INSTALLED = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/usr/lib64/chromium-browser/chromium-browser",
)
ON_PATH = ("google-chrome-stable", "google-chrome", "chromium", "chromium-browser")
PLAYWRIGHT_BUILDS = ("chromium-*/chrome-linux*/chrome",)
SETTING = "FARMCTL_CHROME"


class NoChromium(StageError):
    """No Chromium on this machine that a farm could run."""


def find(environ: dict[str, str] | None = None) -> Path:
    """Return the binary to exec. Raises NoChromium with the command that mends it."""
    env = dict(os.environ) if environ is None else environ
    if named := env.get(SETTING):
        path = Path(named)
        if not os.access(path, os.X_OK):
            raise NoChromium(
                f"{SETTING}={named} is no program", hint=f"unset {SETTING}, or name a Chromium binary"
            )
        return path
    for path in candidates(env):
        if os.access(path, os.X_OK) and not is_stub(path):
            return path
    raise NoChromium("no Chromium found on this machine", hint="apt-get install -y chromium, or `make setup`")


def candidates(env: dict[str, str]) -> list[Path]:
    """Every place looked at, in order of preference."""
    found = [Path(path) for path in INSTALLED]
    found += [Path(path) for name in ON_PATH if (path := shutil.which(name, path=env.get("PATH")))]
    home = Path(env.get("PLAYWRIGHT_BROWSERS_PATH") or Path(env.get("HOME", "/root"), ".cache/ms-playwright"))
    for pattern in PLAYWRIGHT_BUILDS:
        found += sorted(home.glob(pattern), reverse=True)
    return found


def is_stub(path: Path) -> bool:
    """A short script that only starts snap is no browser; a wrapper that execs a real one is passed by too."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return True
    return head.startswith(b"#!") and (b"snap" in head or b"chromium.d" in head)


if __name__ == "__main__":  # scripts/setup asks whether one is there
    print(find())
