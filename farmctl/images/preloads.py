"""The control plane's images of a source-built node: built, put into the node image's containerd, then forgotten."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images.catalogue import ROOT, Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say, kept_at

PRELOADER = "farmctl-preload"  # removed by the builder, whatever happens
AWAIT_CONTAINERD = "for i in $(seq 300); do ctr version >/dev/null 2>&1 && exit 0; sleep 0.2; done; exit 1"
# Committed only after containerd has written its database.
STOP_CONTAINERD = (
    "pkill -x containerd; for i in $(seq 300); do pgrep -x containerd >/dev/null || break; sleep 0.1; done; "
    "rm -f /containerd.log"
)


def build(engine: Engine, catalogue: Catalogue, say: Say) -> None:
    for program, image in catalogue.preloads().items():
        say(f"building {image}")
        recipe = ROOT / "images" / catalogue.preloaded[program].built / "Containerfile"
        with tempfile.TemporaryDirectory(prefix="farmctl-image-") as folder:
            if program != "pause":
                shutil.copy2(kept_at(catalogue.providing(program), program), Path(folder, program))
            engine.build(Path(folder), image, args={"PROGRAM": program}, file=recipe)


def preload(engine: Engine, catalogue: Catalogue, bare: str, name: str, say: Say) -> None:
    """Import the images into the containerd of ``bare``, then commit it as ``name``."""
    say("putting the control plane's images into the node image")
    engine.run("rm", "-f", "-v", PRELOADER, check=False)
    engine.run(
        "run", "-d", "--name", PRELOADER, "--privileged", "--network", "host",
        "--entrypoint", "sleep", bare, "infinity",
    )  # fmt: skip
    try:
        engine.run("exec", "-d", PRELOADER, "sh", "-c", "exec containerd >/containerd.log 2>&1")
        engine.run("exec", PRELOADER, "sh", "-c", AWAIT_CONTAINERD)
        for image in catalogue.preloads().values():
            import_image(engine, image)
        there = engine.run("exec", PRELOADER, "ctr", "--namespace=k8s.io", "images", "list", "-q").stdout
        if missing := sorted(set(catalogue.preloads().values()) - set(there.split())):
            raise StageError(
                f"the node image did not keep {', '.join(missing)}", hint="farmctl doctor (disk), then again"
            )
        engine.run("exec", PRELOADER, "sh", "-c", STOP_CONTAINERD)
        engine.run(
            "commit", "--change", 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]', PRELOADER, name
        )
    finally:
        engine.run("rm", "-f", "-v", PRELOADER, check=False)


def import_image(engine: Engine, image: str) -> None:
    """As kind does: not unpacked, an overlay on an overlay would not survive the commit."""
    with subprocess.Popen(
        [engine.name, "save", image], stdout=subprocess.PIPE, env=engine.environment()
    ) as save:
        words = ("--namespace=k8s.io", "images", "import", "--no-unpack", "--digests", "-")
        engine.run("exec", "-i", PRELOADER, "ctr", *words, stdin=save.stdout)
    if save.returncode != 0:
        raise StageError(f"could not save {image}", hint="farmctl doctor (disk), then again")


def forget(engine: Engine, catalogue: Catalogue, bare: str) -> None:
    """The node image holds them now; in the engine's store they would only take room."""
    engine.run("rmi", "-f", bare, *catalogue.preloads().values(), check=False)
