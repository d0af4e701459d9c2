"""Runs programs, and finds kind and kubectl: on PATH when the version fits, else as built from their Go modules.

Nothing is downloaded but Go modules: those carry checksums of their own (go.sum), a release file would need its hash
pinned here.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images.catalogue import Catalogue, GoBinaries
from farmctl.images.gobuild import Say, build, kept_at

# kubectl may be one minor version away from the API server (Kubernetes version skew policy).
SKEW = {"kind": (0, None), "kubectl": (-1, 1)}
SHOWN_LINES = 10


def run(
    command: list[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout_s: float = 120,
    hint: str = "",
) -> str:
    """Return stdout. Raises StageError with the program's last lines when it fails or does not end."""
    shown = f"{Path(command[0]).name} {' '.join(command[1:4])}"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=env,
            timeout=timeout_s,
            check=False,
            input=stdin,
        )
    except subprocess.TimeoutExpired as error:
        raise StageError(f"`{shown} …` did not end within {timeout_s:.0f} s", hint=hint) from error
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-SHOWN_LINES:])
        raise StageError(f"`{shown} …` failed:\n{last}", hint=hint)
    return done.stdout


def find(name: str, catalogue: Catalogue, say: Say) -> Path:
    """Return ``name`` (kind or kubectl). Raises StageError when it is neither there nor to be built."""
    entry = catalogue.providing(name)
    on_path = shutil.which(name)
    if on_path and fits(name, entry.version, version_of(on_path)):
        return Path(on_path)
    if not kept_at(entry, name).exists() and not shutil.which("go"):
        raise missing(name, entry, on_path)
    build(entry, say, only=name)
    return kept_at(entry, name)


def version_of(program: str) -> str:
    """Return the program's version as ``v1.2.3``, or "" when it does not say one."""
    words = ["version", "--client"] if Path(program).name == "kubectl" else ["version"]
    try:
        said = run([program, *words], env=dict(os.environ), timeout_s=30)
    except StageError:
        return ""
    found = re.search(r"\bv\d+\.\d+\.\d+\b", said)
    return found[0] if found else ""


def fits(name: str, wanted: str, found: str) -> bool:
    """Whether version ``found`` of ``name`` serves where ``wanted`` was asked for."""
    if not found:
        return False
    (major, minor), (wanted_major, wanted_minor) = _numbers(found), _numbers(wanted)
    low, high = SKEW[name]
    ahead = minor - wanted_minor
    return major == wanted_major and ahead >= low and (high is None or ahead <= high)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.lstrip("v").split(".")[:2]
    return int(major), int(minor)


def missing(name: str, entry: GoBinaries, on_path: str | None) -> StageError:
    there = (
        f"{on_path} is {version_of(on_path) or 'of no known version'}" if on_path else f"no {name} on PATH"
    )
    return StageError(
        f"{there}, {entry.version} is needed, and there is no Go toolchain to build it",
        hint=f"install {name} {entry.version}, or Go 1.24 or later",
    )
