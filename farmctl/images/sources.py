"""Where the node image and the base image come from: a container registry, or this machine's own builds.

``auto`` takes what is here already, else a registry if one answers, else builds.
"""

import urllib.error
import urllib.request
from typing import Literal

from farmctl.errors import StageError
from farmctl.images import node
from farmctl.images.catalogue import Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say

Source = Literal["auto", "registry", "build"]
# The address behind the name docker.io; the API's root answers 200 or 401 (OCI distribution specification).
REGISTRY = "https://registry-1.docker.io/v2/"
REACH_S = 4


def choose(
    engine: Engine, catalogue: Catalogue, asked: Source, minor: str = ""
) -> Literal["registry", "build"]:
    """Decide without changing anything. ``minor``: a Kubernetes version other than the catalogue's is only pulled."""
    if asked != "auto":
        return asked
    if minor not in {"", catalogue.minor}:
        return "registry"
    if engine.has_image(node.tag(catalogue)):
        return "build"
    if engine.has_image(catalogue.images["node"].pulled):
        return "registry"
    return "registry" if reachable() else "build"


def reachable(url: str = REGISTRY) -> bool:
    """Whether a registry answers as one; proxies set in the environment are used, as the engine does."""
    try:
        with urllib.request.urlopen(url, timeout=REACH_S):  # noqa: S310 - https
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401
    except (OSError, ValueError):
        return False


def node_image(catalogue: Catalogue, source: Literal["registry", "build"], minor: str = "") -> str:
    """The node image's full name. Raises StageError when there is none of Kubernetes ``minor`` ("": the usual)."""
    pulled = catalogue.images["node"].further
    if minor in {"", catalogue.minor}:
        return catalogue.images["node"].pulled if source == "registry" else node.tag(catalogue)
    if minor not in pulled:
        there = ", ".join(sorted({catalogue.minor, *pulled}))
        raise StageError(f"no node image of Kubernetes {minor} in the catalogue", hint=f"one of: {there}")
    if source == "build":
        raise StageError(
            f"only Kubernetes {catalogue.minor} is built from source", hint=f"--source registry for {minor}"
        )
    return pulled[minor]


def known(catalogue: Catalogue, image: str) -> bool:
    """Whether a cluster of this node image is one that the catalogue describes, whatever its source."""
    pulled = catalogue.images["node"].further.values()
    return image in (node_image(catalogue, "registry"), node_image(catalogue, "build"), *pulled)


def built(catalogue: Catalogue, image: str) -> bool:
    return image == node.tag(catalogue)


def ensure_node(engine: Engine, catalogue: Catalogue, image: str, say: Say) -> dict[str, float]:
    """Make the node image exist; seconds by step. Raises StageError."""
    if built(catalogue, image):
        return node.ensure(engine, catalogue, say, pull_base=False)
    if not engine.has_image(image):
        say(f"pulling {image}")
        pull(engine, image)
    return {}


def pull(engine: Engine, image: str) -> None:
    try:
        engine.run("pull", image)
    except StageError as error:
        raise StageError(
            f"cannot pull {image}: {error}", hint="farmctl up --testbed kind --source build"
        ) from error
