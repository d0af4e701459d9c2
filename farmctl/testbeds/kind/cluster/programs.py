"""Runs programs, and finds kind and kubectl: on PATH when the version fits what it is to talk to, else as built from
their Go modules, and for a cluster of our own else the nodes' own kubectl. Rendering takes any kubectl, or kustomize.

Nothing is downloaded but Go modules: those carry checksums of their own (go.sum), a release file would need its hash
pinned here.
"""

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from farmctl.errors import StageError
from farmctl.images.catalogue import Catalogue, GoBinaries
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say, build, kept_at

# kubectl may be one minor version away from the API server (Kubernetes version skew policy).
SKEW = {"kind": (0, None), "kubectl": (-1, 1)}
SHOWN_LINES = 10
KUBECTL_ON_NODE = "/usr/bin/kubectl"  # in kind's images and in ours


def run(
    command: list[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout_s: float = 120,
    hint: str = "",
) -> str:
    """Return stdout. Raises StageError with the program's last lines when it fails or does not end."""
    shown = f"{Path(command[0]).name} {' '.join(command[1:4])}"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=env,
            timeout=timeout_s,
            check=False,
            input=stdin,
        )
    except subprocess.TimeoutExpired as error:
        raise StageError(f"`{shown} …` did not end within {timeout_s:.0f} s", hint=hint) from error
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-SHOWN_LINES:])
        raise StageError(f"`{shown} …` failed:\n{last}", hint=hint)
    return done.stdout


def find(name: str, catalogue: Catalogue, say: Say) -> Path:
    """Return kind of a version that serves, or any kubectl. Raises StageError when it is neither there nor to be built."""
    entry = catalogue.providing(name)
    on_path = shutil.which(name)
    if on_path and (name == "kubectl" or fits(name, entry.version, version_of(on_path))):
        return Path(on_path)
    if not kept_at(entry, name).exists() and not shutil.which("go"):
        raise missing(name, entry, on_path)
    build(entry, say, only=name)
    return kept_at(entry, name)


def renderer(catalogue: Catalogue) -> Path:
    """A program that renders manifests: any kubectl, or kustomize. Raises StageError when there is none."""
    kept = kept_at(catalogue.providing("kubectl"), "kubectl")
    for found in (shutil.which("kubectl"), shutil.which("kustomize"), str(kept) if kept.exists() else None):
        if found:
            return Path(found)
    raise StageError("neither kubectl nor kustomize is here", hint="install one of them, any version")


def for_nodes(node_image: str, catalogue: Catalogue, own: Path, take: Callable[[Path], None]) -> Path:
    """The kubectl for a cluster of this node image: on PATH or built here where the versions allow, else the nodes' own,
    which ``take`` puts at ``own``. Raises StageError.
    """
    wanted = kubernetes_of(node_image) or catalogue.versions["kubernetes"]
    for found in _kubectls(catalogue, own):
        if fits("kubectl", wanted, version_of(str(found))):
            return found
    if platform.system() != "Linux":  # the nodes' own does not run here
        raise StageError(f"no kubectl here that fits Kubernetes {wanted}", hint=f"install kubectl {wanted}")
    take(own)
    return own


def _kubectls(catalogue: Catalogue, own: Path) -> Iterator[Path]:
    if on_path := shutil.which("kubectl"):
        yield Path(on_path)
    yield from (path for path in (kept_at(catalogue.providing("kubectl"), "kubectl"), own) if path.exists())


def kubernetes_of(node_image: str) -> str:
    """The version of Kubernetes in a node image's tag, as ``v1.34.4``; "" when it names none."""
    found = re.search(r":(v\d+\.\d+\.\d+)", node_image)
    return found[1] if found else ""


def take_out(engine: Engine, node_image: str, node: str, target: Path) -> None:
    """Copy a node's kubectl out: of ``node`` where that container is there, else of the image. Raises StageError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    there = engine.run("container", "inspect", node, check=False).returncode == 0
    name = node if there else engine.run("create", node_image).stdout.split()[-1]
    try:
        engine.run("cp", f"{name}:{KUBECTL_ON_NODE}", str(partial))
    finally:
        if not there:
            engine.run("rm", "-f", "-v", name, check=False)
    partial.chmod(0o755)
    partial.replace(target)


def refuse_skew(kubectl: Path, kubeconfig: str, context: str) -> None:
    """Raises StageError when the cluster's version is more than one minor away from kubectl's. One that does not say its
    version is believed: what it refuses later has its own words.
    """
    named = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    words = [*named, f"--context={context}", "version", "-o", "json", "--request-timeout=10s"]
    try:
        said = json.loads(run([str(kubectl), *words], env=dict(os.environ), timeout_s=30))
        client, server = said["clientVersion"]["gitVersion"], said["serverVersion"]["gitVersion"]
        close = fits("kubectl", server, client)
    except (StageError, ValueError, KeyError, TypeError):
        return
    if not close:
        raise StageError(
            f"{kubectl} is {client}, the cluster is {server}: at most one minor version may lie between them",
            hint=f"put a kubectl of {server} on PATH",
        )


def version_of(program: str) -> str:
    """Return the program's version as ``v1.2.3``, or "" when it does not say one."""
    words = ["version", "--client"] if Path(program).name == "kubectl" else ["version"]
    try:
        said = run([program, *words], env=dict(os.environ), timeout_s=30)
    except StageError:
        return ""
    found = re.search(r"\bv\d+\.\d+\.\d+\b", said)
    return found[0] if found else ""


def fits(name: str, wanted: str, found: str) -> bool:
    """Whether version ``found`` of ``name`` serves where ``wanted`` was asked for."""
    if not found:
        return False
    (major, minor), (wanted_major, wanted_minor) = _numbers(found), _numbers(wanted)
    low, high = SKEW[name]
    ahead = minor - wanted_minor
    return major == wanted_major and ahead >= low and (high is None or ahead <= high)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.lstrip("v").split(".")[:2]
    return int(major), int(minor)


def missing(name: str, entry: GoBinaries, on_path: str | None) -> StageError:
    there = (
        f"{on_path} is {version_of(on_path) or 'of no known version'}" if on_path else f"no {name} on PATH"
    )
    return StageError(
        f"{there}, {entry.version} is needed, and there is no Go toolchain to build it",
        hint=f"install {name} {entry.version}, or Go 1.24 or later",
    )
