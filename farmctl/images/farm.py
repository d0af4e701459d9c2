"""The farm's own two images, browser and proxy: their build contexts, and tags that carry a hash of what goes in."""

import hashlib
import os
import shutil
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images import base, records
from farmctl.images import catalogue as catalogues
from farmctl.images.catalogue import ROOT
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say, cache_folder

# image -> (packages of ours it runs, files of its folder). requirements.txt is uv.lock's part for it, with hashes.
PARTS = {
    "browser": (("farmagent", "farmwire"), ("Containerfile", "requirements.txt", "fonts.conf")),
    "proxy": (("farmproxy", "farmwire"), ("Containerfile", "requirements.txt")),
}
CERTIFICATES = "certificates.pem"
REPOSITORY = "docker.io/library/farm-{image}"


def tag_of(image: str) -> str:
    """The full name that today's inputs give the image."""
    with tempfile.TemporaryDirectory(prefix=f"farmctl-{image}-") as folder:
        lay(image, Path(folder))
        return f"{REPOSITORY.format(image=image)}:{digest(Path(folder))}"


def released(image: str, tag: str) -> str:
    """Where a release keeps the image of this very content, or "": what was changed since then is another image."""
    where = catalogues.read().images[image].released
    content = where.partition("@")[0].rpartition(":")[2]
    return where if content == tag.rpartition(":")[2] else ""


def names(prefix: str = "") -> dict[str, str]:
    """What a cluster pulls, by image: from under ``prefix``, else from where a release keeps it, else by its own tag."""
    tags = {image: tag_of(image) for image in PARTS}
    if prefix:
        return {image: f"{prefix.rstrip('/')}/{tag.rpartition('/')[2]}" for image, tag in tags.items()}
    return {image: released(image, tag) or tag for image, tag in tags.items()}


def ensure(engine: Engine, image: str, say: Say, *, pull: bool) -> str:
    """Return the image's tag; when no image of that content is here, it is pulled if it ``pull`` may be and there is
    a release of it, else built. Raises StageError.
    """
    with tempfile.TemporaryDirectory(prefix=f"farmctl-{image}-") as folder:
        context = Path(folder)
        lay(image, context)
        tag = f"{REPOSITORY.format(image=image)}:{digest(context)}"
        if not engine.has_image(tag) and not (pull and pulled(engine, image, tag, say)):
            base.ensure(engine, say, pull=pull)
            say(f"building {tag}")
            began = time.monotonic()
            reused = engine.build(context, tag)
            seconds = time.monotonic() - began
            records.keep(cache_folder(), f"image: {image}", tag, seconds, cold=not reused)
    return tag


def pulled(engine: Engine, image: str, tag: str, say: Say) -> bool:
    """Whether the release's image is here now, as ``tag``. One that cannot be had is built: that takes longer, no more."""
    where = released(image, tag)
    if not where:
        return False
    by_digest = base.by_digest(where)
    say(f"pulling {where}")
    try:
        engine.run("pull", by_digest)
        engine.run("tag", by_digest, tag)
    except StageError as error:
        say(f"built instead, because {str(error).strip().splitlines()[-1]}")
        return False
    return True


def lay(image: str, context: Path) -> None:
    """Write the build context: recipe, locked requirements, our code without caches."""
    packages, files = PARTS[image]
    for file in files:
        shutil.copy2(ROOT / "images" / image / file, context / file)
    (context / CERTIFICATES).write_bytes(trusted())
    for package in packages:
        shutil.copytree(
            installed(package),
            context / "src" / package,
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
        )


def installed(package: str) -> Path:
    """The folder of a package of ours: of the very code that runs here, in a checkout or from a wheel."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise StageError(
            f"the package {package} is not installed", hint="install farmctl again, with all it needs"
        )
    return Path(spec.submodule_search_locations[0])


def digest(context: Path) -> str:
    """The first 12 hex digits of SHA-256 over the base, names and bytes: file times and whom the host trusts do not count."""
    sha = hashlib.sha256(base.content(catalogues.read()))
    for path in sorted(path for path in context.rglob("*") if path.is_file() and path.name != CERTIFICATES):
        sha.update(str(path.relative_to(context)).encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()[:12]


def trusted() -> bytes:
    """The certificates the host was told to trust for package downloads, or nothing when it uses the usual ones."""
    for setting in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if (path := os.environ.get(setting)) and Path(path).is_file():
            return Path(path).read_bytes()
    return b""
