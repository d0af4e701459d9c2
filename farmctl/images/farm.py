"""The farm's own two images, browser and proxy: their build contexts, and tags that carry a hash of what goes in."""

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from farmctl.images import base, records
from farmctl.images.catalogue import ROOT
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say, cache_folder

# image -> (distribution whose requirements it installs, packages of ours it runs, further files of its folder)
PARTS = {
    "browser": (
        "farm-agent",
        (ROOT / "agent/farmagent", ROOT / "wire/farmwire"),
        ("fonts.conf",),
    ),
    "proxy": ("farm-proxy", (ROOT / "proxy/farmproxy", ROOT / "wire/farmwire"), ()),
}
CERTIFICATES = "certificates.pem"
REPOSITORY = "docker.io/library/farm-{image}"


def tag_of(image: str) -> str:
    """The full name that today's inputs give the image."""
    with tempfile.TemporaryDirectory(prefix=f"farmctl-{image}-") as folder:
        lay(image, Path(folder))
        return f"{REPOSITORY.format(image=image)}:{digest(Path(folder))}"


def ensure(engine: Engine, image: str, say: Say, *, pull_base: bool) -> str:
    """Return the image's tag, building it when no image of that content exists. Raises StageError."""
    with tempfile.TemporaryDirectory(prefix=f"farmctl-{image}-") as folder:
        context = Path(folder)
        lay(image, context)
        tag = f"{REPOSITORY.format(image=image)}:{digest(context)}"
        if not engine.has_image(tag):
            base.ensure(engine, say, pull=pull_base)
            say(f"building {tag}")
            began = time.monotonic()
            reused = engine.build(context, tag)
            seconds = time.monotonic() - began
            records.keep(cache_folder(), f"image: {image}", tag, seconds, cold=not reused)
    return tag


def lay(image: str, context: Path) -> None:
    """Write the build context: recipe, pinned requirements, our code without caches."""
    name, packages, files = PARTS[image]
    for file in ("Containerfile", *files):
        shutil.copy2(ROOT / "images" / image / file, context / file)
    (context / CERTIFICATES).write_bytes(trusted())
    (context / "requirements.txt").write_text("\n".join(requirements(name)) + "\n")
    for package in packages:
        shutil.copytree(package, context / "src" / package.name, ignore=shutil.ignore_patterns("__pycache__"))


def digest(context: Path) -> str:
    """The first 12 hex digits of SHA-256 over names and bytes: file times and whom the host trusts do not count."""
    sha = hashlib.sha256()
    for path in sorted(path for path in context.rglob("*") if path.is_file() and path.name != CERTIFICATES):
        sha.update(str(path.relative_to(context)).encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()[:12]


def trusted() -> bytes:
    """The certificates the host was told to trust for package downloads, or nothing when it uses the usual ones."""
    for setting in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if (path := os.environ.get(setting)) and Path(path).is_file():
            return Path(path).read_bytes()
    return b""


def requirements(name: str) -> list[str]:
    """What ``name`` needs, at the very versions installed here (those of uv.lock), as `package==version` lines."""
    return sorted({f"{found}=={distribution(found).version}" for found in _closure(name, set())})


def _closure(name: str, seen: set[str]) -> Iterator[str]:
    for requirement in distribution(name).requires or []:
        wanted, _, condition = requirement.partition(";")
        found = re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", wanted.strip())[0]).lower()
        if "extra" in condition or found in seen or found.startswith("farm-"):
            continue
        seen.add(found)
        try:
            distribution(found)
        except PackageNotFoundError:
            continue  # a condition on another system or Python
        yield found
        yield from _closure(found, seen)
