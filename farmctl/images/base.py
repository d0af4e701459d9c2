"""The base image every Containerfile starts from: pulled by digest, or made with debootstrap under the very same name.

What debootstrap makes is slimmed as the official image is, so that one Containerfile has one result on both.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import records
from farmctl.images.catalogue import Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say, cache_folder

NAME = "docker.io/library/debian:bookworm-slim"
SUITE = "bookworm"
# Documentation and translations go, licences stay: as in the official slim image.
EXCLUDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
EMPTIED = ("var/cache/apt", "var/lib/apt/lists", "var/log")
DPKG_CONF = "".join(f"path-exclude /{folder}/*\n" for folder in EXCLUDED) + (
    "path-include /usr/share/doc/*/copyright\n"
)
# apt keeps each downloaded package otherwise: 308 MB of the first browser image were that.
APT_CONF = """\
APT::Install-Recommends "false";
APT::Keep-Downloaded-Packages "false";
Acquire::Languages "none";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
"""


def ensure(engine: Engine, say: Say, *, pull: bool) -> None:
    """Make NAME exist in the engine. Raises StageError when it can be neither pulled nor made."""
    if engine.has_image(NAME):
        return
    if pull:
        pulled = by_digest(catalogues.read().images["base"].pulled)
        say(f"pulling {pulled}")
        engine.run("pull", pulled)
        engine.run("tag", pulled, NAME)
        return
    check_tools()
    say("making the Debian base with debootstrap (about 90 s)")
    with (
        records.timed(cache_folder(), "base (debootstrap)", NAME),
        tempfile.TemporaryDirectory(prefix="farmctl-base-") as folder,
    ):
        root = Path(folder, "root")
        bootstrap(root)
        slim(root)
        add_security(root)
        engine.import_folder(root, NAME)


def by_digest(name: str) -> str:
    """The reference without its tag, which some engines want with a digest: docker.io/x/y@sha256:…."""
    tagged, _, digest = name.partition("@")
    return f"{tagged.rpartition(':')[0]}@{digest}"


def content(catalogue: Catalogue) -> bytes:
    """What the base is, pulled or made: goes into the tag of every image that starts from it."""
    return repr((catalogue.images["base"].pulled, SUITE, EXCLUDED, EMPTIED, DPKG_CONF, APT_CONF)).encode()


def check_tools() -> None:
    """Raises StageError naming what is missing to make a base image here."""
    if not shutil.which("debootstrap"):
        raise StageError("no registry in reach, and no debootstrap", hint="apt-get install -y debootstrap")
    if os.geteuid() != 0:
        raise StageError("debootstrap needs root", hint="run it with sudo, or where a registry is in reach")


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
    for folder in EXCLUDED:
        for path in sorted((root / folder).rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.name != "copyright":
                path.unlink()
    for folder in EMPTIED:
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    (root / "etc/apt/apt.conf.d/90slim").write_text(APT_CONF)
    (root / "etc/dpkg/dpkg.cfg.d/90slim").write_text(DPKG_CONF)


def add_security(root: Path) -> None:
    """The release alone carries an old Chromium: add the security and updates suites of the same mirror."""
    sources = root / "etc/apt/sources.list"
    mirror = sources.read_text().split()[1]
    sources.write_text(
        f"deb {mirror} {SUITE} main\ndeb {mirror} {SUITE}-updates main\n"
        f"deb {mirror}-security {SUITE}-security main\n"
    )
