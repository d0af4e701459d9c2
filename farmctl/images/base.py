"""The base image every Containerfile starts from: pulled, or made with debootstrap under the very same name."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say

NAME = "docker.io/library/debian:bookworm-slim"
SUITE = "bookworm"
# Documentation and translations go, as in the official slim image.
SLIM = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)


def ensure(engine: Engine, say: Say, *, pull: bool) -> None:
    """Make NAME exist in the engine. Raises StageError when it can be neither pulled nor made."""
    if engine.has_image(NAME):
        return
    if pull:
        say(f"pulling {NAME}")
        engine.run("pull", NAME)
        return
    if not shutil.which("debootstrap"):
        raise StageError("no registry in reach, and no debootstrap", hint="apt-get install -y debootstrap")
    say("making the Debian base with debootstrap (about 90 s)")
    with tempfile.TemporaryDirectory(prefix="farmctl-base-") as folder:
        root = Path(folder, "root")
        bootstrap(root)
        slim(root)
        add_security(root)
        archive = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
        engine.run("import", "-", NAME, stdin=archive.stdout)
        archive.wait()


def bootstrap(root: Path) -> None:
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-5:])
        raise StageError(
            f"debootstrap failed:\n{last}", hint="it needs root and Debian's package registry in reach"
        )


def slim(root: Path) -> None:
    for folder in SLIM:
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True, exist_ok=True)
    (root / "etc/apt/apt.conf.d/90slim").write_text(
        'APT::Install-Recommends "false";\nAcquire::Languages "none";\n'
    )


def add_security(root: Path) -> None:
    """The release alone carries an old Chromium: add the security and updates suites of the same mirror."""
    sources = root / "etc/apt/sources.list"
    mirror = sources.read_text().split()[1]
    sources.write_text(
        f"deb {mirror} {SUITE} main\ndeb {mirror} {SUITE}-updates main\ndeb {mirror}-security {SUITE}-security main\n"
    )
