"""Puts images into the containerd of every node, and believes only what each node says of them afterwards.

What a node has is not sent again: not the image, and not those of its layers that came with an earlier one.
"""

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farmctl.errors import StageError
from farmctl.images import archives
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say

CTR = ("ctr", "--namespace=k8s.io")
USUAL = "overlayfs"
IMPORT_S = 900
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Moved:
    node: str
    image: str
    bytes: int


def ensure(engine: Engine, wanted: Mapping[str, Sequence[str]], say: Say) -> list[Moved]:
    """Make every image whole on every node it is wanted on (``wanted``: image -> nodes); what was moved.

    Raises StageError naming image, node and cause.
    """
    moved: list[Moved] = []
    for image, nodes in wanted.items():
        lacking = [node for node in nodes if not has(engine, node, image)]
        if lacking:
            say(f"loading {image} into {', '.join(lacking)}")
            moved += load(engine, lacking, image)
    return moved


def load(engine: Engine, nodes: Sequence[str], image: str) -> list[Moved]:
    with tempfile.TemporaryDirectory(prefix="farmctl-load-") as folder:
        path = Path(folder, "image.tar")
        engine.run("save", "-o", str(path), image)
        saved = archives.read(path, image)
        with ThreadPoolExecutor(len(nodes)) as pool:
            return list(pool.map(lambda node: send(engine, node, saved), nodes))


def send(engine: Engine, node: str, saved: archives.Saved) -> Moved:
    """Import into one node and verify. Raises StageError."""
    there = set(engine.run("exec", node, *CTR, "content", "ls", "-q").stdout.split())
    read, write = os.pipe()
    of = snapshotter(engine, node)
    # The service that imports by default unpacks for the one snapshotter that it is set up with.
    into = ("--local", "--snapshotter", of) if of else ()
    words = ("exec", "-i", node, *CTR, "images", "import", "--digests", *into, "-")
    with subprocess.Popen(
        [engine.name, *words],
        stdin=read,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=engine.environment(),
        text=True,
    ) as importing:
        os.close(read)
        moved = _feed(saved, write, without=there)
        said, _ = importing.communicate(timeout=IMPORT_S)
    if importing.returncode != 0 or not has(engine, node, saved.name):
        cause = " ".join(said.strip().splitlines()[-2:]) or "the node does not list it"
        raise StageError(f"{saved.name} did not get into {node}: {cause}", hint=hint(engine, node))
    return Moved(node, saved.name, moved)


def _feed(saved: archives.Saved, write: int, *, without: set[str]) -> int:
    try:
        with open(write, "wb") as out:
            return archives.write(saved, out, without=without)
    except BrokenPipeError:
        return 0  # the importer ended early: what it said is the cause


def has(engine: Engine, node: str, image: str) -> bool:
    """Whether the image is whole there: listed, with all its blobs, and unpacked."""
    of = snapshotter(engine, node)
    words = ("--snapshotter", of) if of else ()
    asked = engine.run("exec", node, *CTR, "images", "check", *words, f"name=={image}", check=False)
    lines = [line for line in asked.stdout.splitlines() if line.startswith(f"{image} ")]
    return bool(lines) and " complete " in lines[0] and lines[0].rstrip().endswith("true")


def snapshotter(engine: Engine, node: str) -> str:
    """The snapshotter that this node starts pods from, "" for the usual one. kind sets another where the engine's disk or
    a rootless engine wants it: what is unpacked for another is unpacked for nobody.
    """
    dumped = engine.run("exec", node, "containerd", "config", "dump", check=False).stdout
    try:
        plugins: dict[str, Any] = tomllib.loads(dumped).get("plugins", {})
    except tomllib.TOMLDecodeError:
        return ""
    older = plugins.get("io.containerd.grpc.v1.cri", {}).get("containerd", {})  # of containerd 1.x
    found = str(plugins.get("io.containerd.cri.v1.images", older).get("snapshotter", ""))
    return "" if found == USUAL else found


def drop(engine: Engine, node: str, image: str) -> None:
    """Remove the image from the node; a pod that still ends keeps its own."""
    engine.run("exec", node, "crictl", "rmi", image, check=False)


def hint(engine: Engine, node: str) -> str:
    """A full disk is the usual cause: say so when it is."""
    free = engine.run("exec", node, "df", "-Pm", "/var/lib/containerd", check=False).stdout.split()
    if len(free) > 3 and free[-3].isdecimal() and int(free[-3]) < 1024:
        return f"the disk is full there ({free[-3]} MiB left): farmctl images prune, or free space"
    return "farmctl images load"
