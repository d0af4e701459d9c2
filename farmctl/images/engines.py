"""The container engine: docker or podman, found, version-checked and called the same way.

podman on cgroup v1 needs runc and no default ulimits; that stands in a private file named by CONTAINERS_CONF, so that
the system's own settings are left alone.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from farmctl.errors import StageError
from farmctl.images.gobuild import cache_folder

LEAST = {"docker": (20, 10), "podman": (4, 3)}  # podman 4.3 is Debian 12's, and what kind was tried with
REUSED = ("--> Using cache", " CACHED")  # podman's and BuildKit's words
PODMAN_CONF = '[containers]\ndefault_ulimits = []\n[engine]\nruntime = "runc"\n'


@dataclass(frozen=True, slots=True)
class Engine:
    """``name`` is docker or podman; ``env`` is what every call (and kind) runs with."""

    name: str
    version: str
    env: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        *words: str,
        stdin: IO[bytes] | bytes | None = None,
        check: bool = True,
        timeout_s: float = 1800,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``ENGINE words``; text out. Raises StageError with the last lines when it fails and ``check``."""
        given: dict[str, Any] = {"input": stdin.decode()} if isinstance(stdin, bytes) else {"stdin": stdin}
        if stdin is None:
            given = {"stdin": subprocess.DEVNULL}
        done = subprocess.run(
            [self.name, *words],
            **given,
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=timeout_s,
            check=False,
            cwd=cwd,
        )
        if check and done.returncode != 0:
            last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
            raise StageError(f"`{self.name} {' '.join(words[:3])} …` failed:\n{last}", hint="farmctl doctor")
        return done

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.env}

    def has_image(self, tag: str) -> bool:
        return self.run("image", "inspect", tag, check=False).returncode == 0

    def image_bytes(self, tag: str) -> int:
        """Uncompressed size. Raises StageError when the image is not there."""
        return int(json.loads(self.run("image", "inspect", tag).stdout)[0]["Size"])

    def import_folder(self, root: Path, tag: str) -> None:
        """Make an image of one layer from a folder, owners and modes kept."""
        with subprocess.Popen(
            ["tar", "-C", str(root), "--numeric-owner", "-c", "."], stdout=subprocess.PIPE
        ) as tar:
            self.run("import", "-", tag, stdin=tar.stdout)
        if tar.returncode != 0:
            raise StageError(f"could not pack {root} for {tag}", hint="farmctl doctor (disk)")

    def build(
        self, context: Path, tag: str, *, args: Mapping[str, str] | None = None, file: Path | None = None
    ) -> bool:
        """Build ``context`` as ``tag``; the host's network serves where a bridge does not reach the registries.

        Returns whether layers of an earlier build were taken for it.
        """
        words = ["build", "--network", "host", "-t", tag]
        words += [part for key, value in (args or {}).items() for part in ("--build-arg", f"{key}={value}")]
        words += ["-f", str(file)] if file else []
        done = self.run(*words, str(context), timeout_s=3600)
        return any(mark in said for mark in REUSED for said in (done.stdout, done.stderr))


def find(environ: Mapping[str, str] | None = None) -> Engine:
    """Return the engine that answers, docker first (KIND_EXPERIMENTAL_PROVIDER overrules). Raises StageError."""
    env = os.environ if environ is None else environ
    named = env.get("KIND_EXPERIMENTAL_PROVIDER", "")
    problems = []
    for name in [named] if named else ["docker", "podman"]:
        if not shutil.which(name):
            continue
        try:
            return check(name)
        except StageError as problem:
            problems.append(problem)
    if problems:
        raise problems[-1]
    raise StageError(
        "no container engine on this machine", hint="apt-get install -y podman runc, or install Docker"
    )


def check(name: str) -> Engine:
    """Ask the engine itself for its version: a client alone is no engine."""
    engine = Engine(name, "", environment(name))
    asked = engine.run(
        "info", "--format", "json" if name == "podman" else "{{json .}}", check=False, timeout_s=60
    )
    if asked.returncode != 0:
        last = asked.stderr.strip().splitlines()[-1:] or ["it does not answer"]
        refused = "permission denied" in last[0]
        hint = f"add your user to the {name} group, or use sudo" if refused else f"systemctl start {name}"
        raise StageError(f"{name} is installed, but its engine does not answer: {last[0]}", hint=hint)
    info = json.loads(asked.stdout)
    version = str(info["version"]["Version"] if name == "podman" else info["ServerVersion"])
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < LEAST[name]:
        wanted = ".".join(map(str, LEAST[name]))
        raise StageError(f"{name} {version} is too old, {wanted} is needed", hint=f"upgrade {name}")
    return Engine(name, version, engine.env)


def environment(name: str) -> dict[str, str]:
    if name != "podman":
        return {}
    env = {"KIND_EXPERIMENTAL_PROVIDER": "podman"}
    if "CONTAINERS_CONF" not in os.environ and not unified_cgroups():
        conf = cache_folder() / "containers.conf"
        conf.parent.mkdir(parents=True, exist_ok=True)
        conf.write_text(PODMAN_CONF)
        env["CONTAINERS_CONF"] = str(conf)
    return env


def unified_cgroups() -> bool:
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def kind_environment(
    engine: Engine, kubeconfig: Path, extra: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """What kind and kubectl run with: our engine, our kubeconfig, never the user's."""
    return {**os.environ, **engine.env, "KUBECONFIG": str(kubeconfig), **dict(extra)}
