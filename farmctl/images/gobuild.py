"""Builds programs from Go modules and keeps them by version in the user's cache folder.

Each program is cached the moment it is built, so an interrupted run loses only the one under way. The build runs
niced: lint and tests go on beside it. Go's own caches (7 GB after a cold build) stand in a folder of ours, so that they
can go when everything is built; an interrupted build finds them again.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images import records
from farmctl.images.catalogue import GoBinaries

Say = Callable[[str], None]


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "farmctl")


def kept_at(entry: GoBinaries, name: str) -> Path:
    """Where program ``name`` of ``entry`` is kept, built or not."""
    return cache_folder() / "bin" / f"{entry.module.replace('/', '_')}@{entry.version}" / name


def go_caches() -> Path:
    """Go's build and module caches, while something is being built."""
    return cache_folder() / "go"


def drop_go_caches() -> None:
    shutil.rmtree(go_caches(), ignore_errors=True)


def build(entry: GoBinaries, say: Say, *, only: str = "") -> dict[str, float]:
    """Build what is missing of ``entry`` (or just ``only``). Returns seconds taken by program name.

    Raises StageError when Go is missing or a build fails, with the last lines of what it printed.
    """
    wanted = [(n, p) for n, p in zip(entry.names, entry.packages, strict=True) if only in ("", n)]
    missing = [(n, p) for n, p in wanted if not kept_at(entry, n).exists()]
    if not missing:
        return {}
    if not shutil.which("go"):
        raise StageError(
            "no Go toolchain, and no registry to pull images from", hint="install Go 1.24 or later"
        )
    taken: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="farmctl-go-") as folder:
        with records.timed(cache_folder(), f"go modules of {entry.module}", entry.version):
            prepare(entry, Path(folder))
        for name, package in missing:
            began = time.monotonic()
            say(f"building {name} {entry.version}")
            compile_one(entry, Path(folder), name, package)
            taken[name] = round(time.monotonic() - began, 1)
            records.keep(cache_folder(), f"go: {name}", entry.version, taken[name])
    return taken


def prepare(entry: GoBinaries, folder: Path) -> None:
    """Write a module of our own that requires the tool's at its exact version."""
    lines = ["module farmctl.local/build", "", "go 1.24", ""]
    if entry.godebug:
        lines += [f"godebug default={entry.godebug}", ""]
    lines += [f"require {entry.module} {entry.version}"]
    if entry.staging:
        lines += [f"replace {m} => {m} {entry.staging}" for m in staged_modules(entry)]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    # One call with every package: asked for apart, go would upgrade shared modules between them.
    run(["go", "get", "-tool", *(f"{package}@{entry.version}" for package in entry.packages)], folder)


def staged_modules(entry: GoBinaries) -> list[str]:
    """The modules that the tool's own go.mod replaces by ./staging, read from its downloaded go.mod."""
    answer = run(["go", "mod", "download", "-json", f"{entry.module}@{entry.version}"], Path.cwd())
    go_mod = Path(json.loads(answer)["GoMod"]).read_text()
    return re.findall(r"^\s*(?:replace )?(\S+) => \./staging/", go_mod, flags=re.MULTILINE)


def compile_one(entry: GoBinaries, folder: Path, name: str, package: str) -> None:
    major, minor = entry.version.lstrip("v").split(".")[:2]
    stamps = [
        f"-X {where}.{key}={value}"
        for where in entry.stamp
        for key, value in (("gitVersion", entry.version), ("gitMajor", major), ("gitMinor", minor))
    ]
    target = kept_at(entry, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{name}.partial")
    run(
        ["go", "build", "-trimpath", "-ldflags", " ".join(["-s -w", *stamps]), "-o", str(partial), package],
        folder,
    )
    partial.replace(target)


def run(command: list[str], folder: Path) -> str:
    """Run ``command`` niced, statically linked where it compiles; return its stdout."""
    done = subprocess.run(
        ["nice", "-n", "15", *command],
        cwd=folder,
        env=go_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise StageError(
            f"`{' '.join(command[:4])} …` failed:\n{last}", hint="see the lines above; then run it again"
        )
    return done.stdout


def go_environment() -> dict[str, str]:
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOCACHE": str(go_caches() / "build"),
        "GOMODCACHE": str(go_caches() / "modules"),
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),  # else it could not be removed
    }


def build_all(entries: list[GoBinaries], say: Say) -> dict[str, float]:
    """Build every missing program; seconds by name. Already kept ones cost nothing."""
    taken: dict[str, float] = {}
    for entry in entries:
        taken |= build(entry, say)
    return taken
