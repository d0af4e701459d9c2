"""Builds a kind node image from source: Debian, kind's own node files and the programs that farmctl built, with the
control plane's images in its containerd, so that a cluster starts without any registry.

The tag carries a hash of what goes in; an image of that tag is never built again.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from farmctl.images import base, preloads, records
from farmctl.images.catalogue import ROOT, Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say, build_all, cache_folder, drop_go_caches, kept_at, run

RECIPES = ROOT / "images"
ON_NODE = ("containerd", "ctr", "containerd-shim-runc-v2", "crictl")
MARK = "-farm-"  # in the tag of what is built here
KUBE_ON_NODE = ("kubelet", "kubeadm", "kubectl")


def tag(catalogue: Catalogue) -> str:
    """The built image's full name: kind and podman both want the registry's part spelled out."""
    digest = hashlib.sha256(base.content(catalogue))
    built = {image.built for image in catalogue.preloaded.values()} | {catalogue.images["node"].built}
    for recipe in sorted(built):
        digest.update((RECIPES / recipe / "Containerfile").read_bytes())
    digest.update(repr((catalogue.binaries, catalogue.preloads())).encode())
    return (
        f"{catalogue.images['node'].name}:{catalogue.versions['kubernetes']}{MARK}{digest.hexdigest()[:10]}"
    )


def ensure(engine: Engine, catalogue: Catalogue, say: Say, *, pull_base: bool) -> dict[str, float]:
    """Make ``tag(catalogue)`` exist; returns the seconds that each step took. Raises StageError."""
    name = tag(catalogue)
    if engine.has_image(name):
        return {}
    if not pull_base and not engine.has_image(base.NAME):
        base.check_tools()  # before an hour of building
    taken = {f"go: {program}": seconds for program, seconds in build_all(catalogue.binaries, say).items()}
    bare = f"{name}-bare"
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("base", lambda: base.ensure(engine, say, pull=pull_base)),
        ("control plane images", lambda: preloads.build(engine, catalogue, say)),
        ("node", lambda: build_bare(engine, catalogue, bare, say)),
        ("preload", lambda: preloads.preload(engine, catalogue, bare, name, say)),
    )
    for step, do in steps:
        began = time.monotonic()
        do()
        taken[step] = round(time.monotonic() - began, 1)
        if step != "base":  # which is recorded where it is made
            records.keep(cache_folder(), step, name, taken[step])
    preloads.forget(engine, catalogue, bare)
    drop_go_caches()
    return taken


def build_bare(engine: Engine, catalogue: Catalogue, bare: str, say: Say) -> None:
    """Build the node image without anything in its containerd yet."""
    say("building the node image")
    with tempfile.TemporaryDirectory(prefix="farmctl-node-") as folder:
        context = Path(folder)
        shutil.copytree(kind_module(catalogue) / "images/base/files", context / "files")
        for path in (context / "files").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)  # the module cache is read-only
        for where, programs in (("bin", ON_NODE), ("kube", KUBE_ON_NODE)):
            (context / where).mkdir()
            for program in programs:
                link(catalogue, program, context / where)
        args = {"KUBERNETES": catalogue.versions["kubernetes"]}
        engine.build(
            context, bare, args=args, file=RECIPES / catalogue.images["node"].built / "Containerfile"
        )


def kind_module(catalogue: Catalogue) -> Path:
    """The folder of kind's Go module, which carries the files of its own node base image."""
    entry = catalogue.providing("kind")
    answer = run(["go", "mod", "download", "-json", f"{entry.module}@{entry.version}"], Path.cwd())
    return Path(json.loads(answer)["Dir"])


def link(catalogue: Catalogue, program: str, folder: Path) -> None:
    kept = kept_at(catalogue.providing(program), program)
    try:
        os.link(kept, folder / program)  # a second name costs nothing; another file system needs a copy
    except OSError:
        shutil.copy2(kept, folder / program)
