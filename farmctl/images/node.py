"""Builds a kind node image from source: Debian, kind's own node files, the programs farmctl built, and the control
plane's images preloaded into its containerd, so that a cluster starts without any registry.

The tag carries a hash of what goes in; an image of that tag is never built again.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images import base
from farmctl.images.catalogue import ROOT, Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say, build_all, kept_at, run

IMAGES = ROOT / "images"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
ON_NODE = ("containerd", "ctr", "containerd-shim-runc-v2", "crictl")
KUBE_ON_NODE = ("kubelet", "kubeadm", "kubectl")
RECIPES = ("node", "control-plane", "coredns", "kube-proxy", "pause")
# Started with `sleep`; removed by the builder, whatever happens.
PRELOADER = "farmctl-preload"


def tag(catalogue: Catalogue) -> str:
    """The node image's full name; kind and podman both want the registry's part spelled out."""
    digest = hashlib.sha256()
    for recipe in RECIPES:
        digest.update((IMAGES / recipe / "Containerfile").read_bytes())
    digest.update(repr(catalogue).encode())
    return f"docker.io/kindest/node:{catalogue.versions['kubernetes']}-{digest.hexdigest()[:10]}"


def ensure(engine: Engine, catalogue: Catalogue, say: Say) -> tuple[str, dict[str, float]]:
    """Return the tag, building what is missing, and the seconds each step took. Raises StageError."""
    name = tag(catalogue)
    if engine.has_image(name):
        return name, {}
    taken = {f"go: {program}": seconds for program, seconds in build_all(catalogue.binaries, say).items()}
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("base", lambda: base.ensure(engine, say, pull=False)),
        ("control plane images", lambda: build_control_plane(engine, catalogue, say)),
        ("node", lambda: build_node(engine, catalogue, say)),
        ("preload", lambda: preload(engine, catalogue, name, say)),
    )
    for step, do in steps:
        began = time.monotonic()
        do()
        taken[step] = round(time.monotonic() - began, 1)
    return name, taken


def preloaded(catalogue: Catalogue) -> dict[str, str]:
    """Image name by program, as kubeadm and containerd ask for them."""
    version = catalogue.versions
    names = {
        program: f"registry.k8s.io/{program}:{version['kubernetes']}"
        for program in (*CONTROL_PLANE, "kube-proxy")
    }
    return names | {
        "etcd": f"registry.k8s.io/etcd:{version['etcd_image']}",
        "coredns": f"registry.k8s.io/coredns/coredns:{version['coredns_image']}",
        "pause": f"registry.k8s.io/pause:{version['pause_image']}",
    }


def build_control_plane(engine: Engine, catalogue: Catalogue, say: Say) -> None:
    recipes = {"coredns": "coredns", "kube-proxy": "kube-proxy", "pause": "pause"}
    for program, image in preloaded(catalogue).items():
        say(f"building {image}")
        with tempfile.TemporaryDirectory(prefix="farmctl-image-") as folder:
            if program != "pause":
                link(catalogue, program, Path(folder))
            recipe = IMAGES / recipes.get(program, "control-plane") / "Containerfile"
            engine.build(Path(folder), image, args={"PROGRAM": program}, file=recipe)


def build_node(engine: Engine, catalogue: Catalogue, say: Say) -> None:
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
        engine.build(context, f"{tag(catalogue)}-bare", args=args, file=IMAGES / "node" / "Containerfile")


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


def preload(engine: Engine, catalogue: Catalogue, name: str, say: Say) -> None:
    """Import the control plane's images into the node's containerd, then commit the node as ``name``."""
    say("preloading the control plane's images into the node image")
    engine.run("rm", "-f", "-v", PRELOADER, check=False)
    engine.run(
        "run", "-d", "--name", PRELOADER, "--privileged", "--network", "host",
        "--entrypoint", "sleep", f"{name}-bare", "infinity",
    )  # fmt: skip
    try:
        engine.run("exec", "-d", PRELOADER, "sh", "-c", "exec containerd >/containerd.log 2>&1")
        engine.run(
            "exec",
            PRELOADER,
            "sh",
            "-c",
            "for i in $(seq 100); do ctr version && exit 0; sleep 0.2; done; exit 1",
        )
        import_images(engine, PRELOADER, preloaded(catalogue).values())
        engine.run("exec", PRELOADER, "sh", "-c", "pkill -x containerd; rm -f /containerd.log")
        changes = ("--change", 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]')
        engine.run("commit", *changes, PRELOADER, name)
    finally:
        engine.run("rm", "-f", "-v", PRELOADER, check=False)
    engine.run("rmi", f"{name}-bare", check=False)


def import_images(engine: Engine, node: str, images: Iterable[str]) -> None:
    """Pipe the engine's images into ``node``'s containerd; each is verified by name afterwards."""
    for image in images:
        save = subprocess.Popen(
            [engine.name, "save", image], stdout=subprocess.PIPE, env={**os.environ, **engine.env}
        )
        words = ("--namespace=k8s.io", "images", "import", "--no-unpack", "--digests", "-")
        engine.run("exec", "-i", node, "ctr", *words, stdin=save.stdout)
        save.wait()
    there = engine.run("exec", node, "ctr", "--namespace=k8s.io", "images", "list", "-q").stdout.split()
    if missing := sorted(set(images) - set(there)):
        raise StageError(
            f"{node} did not keep {', '.join(missing)}", hint="farmctl doctor (disk), then try again"
        )
