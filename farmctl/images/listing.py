"""What there is of the kind testbed's images: in the engine, on the nodes; and what of it is no longer needed."""

import json
from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from farmctl.images import base, farm, gobuild, loading, node
from farmctl.images.catalogue import Catalogue
from farmctl.images.engines import Engine

BUILT_HERE = ("browser", "proxy", "node")


@dataclass(frozen=True, slots=True)
class Row:
    """``bytes`` is 0 for an image that is not in the engine; ``nodes`` are those that have it whole."""

    name: str
    image: str
    bytes: int
    nodes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def current(catalogue: Catalogue) -> dict[str, str]:
    """Every image by its name in the catalogue, at the tag that today's inputs give it."""
    return {
        "base": base.NAME,
        **{image: farm.tag_of(image) for image in farm.PARTS},
        "node": node.tag(catalogue),
        "node (registry)": catalogue.images["node"].pulled,
    }


def rows(engine: Engine, catalogue: Catalogue, nodes: Iterable[str]) -> list[Row]:
    there = list(nodes)
    return [
        Row(
            name,
            image,
            engine.image_bytes(image) if engine.has_image(image) else 0,
            tuple(each for each in there if name in farm.PARTS and loading.has(engine, each, image)),
        )
        for name, image in current(catalogue).items()
    ]


def stale(engine: Engine, catalogue: Catalogue, in_use: Iterable[str]) -> list[str]:
    """Tags of our own images in the engine that neither today's inputs nor the running farm name."""
    keep = {*current(catalogue).values(), *in_use}
    repositories = {catalogue.images[name].name for name in BUILT_HERE}
    return sorted(tag for tag in tags(engine) if built_here(tag, repositories) and tag not in keep)


def stale_programs(catalogue: Catalogue) -> list[Path]:
    """Folders of kept programs whose version the catalogue no longer names."""
    keep = {gobuild.kept_at(entry, name).parent for entry in catalogue.binaries for name in entry.names}
    return sorted(set((gobuild.cache_folder() / "bin").glob("*")) - keep)


def built_here(tag: str, repositories: Container[str]) -> bool:
    """Whether farmctl built it: a node image without our mark may be another kind cluster's."""
    repository, _, version = tag.rpartition(":")
    marked = node.MARK in version or "kindest" not in repository
    return repository in repositories and marked and version != "<none>"


def tags(engine: Engine) -> list[str]:
    """Every tagged image of the engine by its full name (docker leaves out its own registry's)."""
    listed = engine.run("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
    return [full(tag) for tag in listed]


def full(tag: str) -> str:
    repository = tag.rpartition(":")[0]
    if "/" not in repository:
        return f"docker.io/library/{tag}"
    host = repository.partition("/")[0]
    return tag if "." in host or ":" in host or host == "localhost" else f"docker.io/{tag}"


def stale_on(engine: Engine, node_name: str, keep: Iterable[str]) -> list[str]:
    """The farm's images in a node's containerd that are not in ``keep``."""
    repositories = {farm.REPOSITORY.format(image=image) for image in farm.PARTS}
    listed = json.loads(engine.run("exec", node_name, "crictl", "images", "-o", "json").stdout)["images"]
    there = [tag for image in listed for tag in image.get("repoTags") or ()]
    return sorted(tag for tag in there if tag.rpartition(":")[0] in repositories and tag not in set(keep))
