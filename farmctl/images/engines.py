"""The container engine: docker or podman, found, version-checked and called the same way.

What matters of the machine that containers run on is asked of the engine: that may be a virtual machine, or rootless.
podman gets settings from private files of ours, so that the system's own are left alone: no limit of processes, and on
cgroup v1, instead of the system's, runc and no default ulimits.
"""

import ipaddress
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from farmctl.errors import StageError
from farmctl.images.gobuild import cache_folder

LEAST = {"docker": (20, 10), "podman": (4, 3)}  # podman 4.3 is Debian 12's, and what kind was tried with
REUSED = ("--> Using cache", " CACHED")  # podman's and BuildKit's words
RECIPE = "Containerfile"  # docker looks for a Dockerfile only
# podman's own limit is 2048 processes a container: some twenty Chromes, where the container is a node.
PODMAN_CONF = "[containers]\npids_limit = 0\n"
PODMAN_V1_CONF = f'{PODMAN_CONF}default_ulimits = []\n[engine]\nruntime = "runc"\n'
# Attestations would make each image an index of two, of which an archive carries one half.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
LOOPBACK = ("localhost", "127.0.0.0/8", "127.0.0.1", "::1")  # some read ranges, some only addresses
DOCKER_ENV = {"KIND_EXPERIMENTAL_PROVIDER": "docker", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
PODMAN_ENV = {"KIND_EXPERIMENTAL_PROVIDER": "podman"}


@dataclass(frozen=True, slots=True)
class Engine:
    """``name`` is docker or podman; ``env`` is what every call (and kind) runs with.

    ``unified``: containers get cgroup v2. ``elsewhere``: they run in a virtual machine, not on this one. ``at``: where
    docker's client reaches it.
    """

    name: str
    version: str
    env: Mapping[str, str] = field(default_factory=dict)
    unified: bool = True
    rootless: bool = False
    elsewhere: bool = False
    at: str = ""

    @property
    def key(self) -> str:
        """What ``find`` finds this very engine by again."""
        return f"{self.name} {self.at}".strip()

    def run(
        self,
        *words: str,
        stdin: IO[bytes] | bytes | None = None,
        check: bool = True,
        timeout_s: float = 1800,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``ENGINE words``; text out. Raises StageError with the last lines when it fails and ``check``, or when it
        does not end.
        """
        given: dict[str, Any] = {"input": stdin.decode()} if isinstance(stdin, bytes) else {"stdin": stdin}
        if stdin is None:
            given = {"stdin": subprocess.DEVNULL}
        shown = f"`{self.name} {' '.join(words[:3])} …`"
        try:
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
        except subprocess.TimeoutExpired as error:
            raise StageError(f"{shown} did not end within {timeout_s:g} s", hint="farmctl doctor") from error
        if check and done.returncode != 0:
            last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
            raise StageError(f"{shown} failed:\n{last}", hint="farmctl doctor")
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
        words += ["-f", str(file or context / RECIPE)]
        done = self.run(*words, str(context), timeout_s=3600)
        return any(mark in said for mark in REUSED for said in (done.stdout, done.stderr))


def find(named: str = "") -> Engine:
    """Return the engine that answers, docker first. ``named`` (an engine's key) is the only one asked: where a farm's nodes
    are already; KIND_EXPERIMENTAL_PROVIDER names one for a new farm. Raises StageError with the cause of each that does
    not serve.
    """
    named, _, at = named.partition(" ")
    named = named or os.environ.get("KIND_EXPERIMENTAL_PROVIDER", "")
    if named and named not in LEAST:
        raise StageError(f"no farm runs on {named!r}", hint="KIND_EXPERIMENTAL_PROVIDER=docker or podman")
    problems = []
    for name in [named] if named else LEAST:
        if not shutil.which(name):
            continue
        try:
            return check(name, at)
        except StageError as problem:
            problems.append(problem)
    if problems:
        hints = [problem.hint for problem in problems if problem.hint]
        raise StageError("\n  ".join(map(str, problems)), hint="; or ".join(hints)) from problems[0]
    raise StageError(
        f"no {named or 'container engine'} on this machine",
        hint=f"install {named}" if named else "apt-get install -y podman runc, or install Docker",
    )


def check(name: str, at: str = "") -> Engine:
    """Ask the engine itself, not its client, for its version and where it runs; ``at`` where the client is set to it now,
    or was when the farm was made. Raises StageError.
    """
    engine = Engine(name, "", DOCKER_ENV if name == "docker" else PODMAN_ENV)
    where = address(engine)
    if at and at != where:
        engine, where = replace(engine, env={**engine.env, "DOCKER_HOST": at}), at
    refuse_remote(engine, where)
    engine = replace(engine, at=where if name == "docker" else "")
    shape = "json" if name == "podman" else "{{json .}}"
    asked = engine.run("info", "--format", shape, check=False, timeout_s=60)
    try:
        info = json.loads(asked.stdout)
    except ValueError:
        info = {}
    if asked.returncode != 0 or not isinstance(info, dict) or info.get("ServerErrors"):
        raise silent(name, [*asked.stderr.splitlines(), *(_mapping(info).get("ServerErrors") or ())])
    found = docker_says(engine, info) if name == "docker" else podman_says(engine, info)
    numbers = re.match(r"(\d+)\.(\d+)", found.version)
    if numbers is None:
        raise silent(name, [f"it gives no version ({found.version!r})"])
    if (int(numbers[1]), int(numbers[2])) < LEAST[name]:
        wanted = ".".join(map(str, LEAST[name]))
        raise StageError(f"{name} {found.version} is too old, {wanted} is needed", hint=f"upgrade {name}")
    return found


def silent(name: str, said: Sequence[str]) -> StageError:
    """The engine behind the client gives no account of itself: down, locked, or no engine at all."""
    last = next((line.strip() for line in reversed(said) if line.strip()), "it says nothing of itself")
    hint = f"systemctl start {name}"
    if "permission denied" in last:
        hint = f"add your user to the {name} group, or use sudo"
    return StageError(f"{name} is installed, but its engine does not answer: {last}", hint=hint)


def docker_says(engine: Engine, info: Mapping[str, Any]) -> Engine:
    """What `docker info` tells. Raises StageError where another engine answers under its name."""
    # podman's own form, from a command of docker's name; and what its service says to a client of docker's.
    if "host" in info or info.get("ProductLicense") == "Apache-2.0":
        raise StageError("docker is podman here", hint="KIND_EXPERIMENTAL_PROVIDER=podman uses it as that")
    security = info.get("SecurityOptions") or ()
    return replace(
        engine,
        version=str(info.get("ServerVersion") or ""),
        unified=str(info.get("CgroupVersion")) == "2",
        rootless=any("name=rootless" in option for option in security),
        elsewhere=info.get("OperatingSystem") == "Docker Desktop",
    )


def podman_says(engine: Engine, info: Mapping[str, Any]) -> Engine:
    host, version = _mapping(info.get("host")), _mapping(info.get("version"))
    unified, elsewhere = host.get("cgroupVersion") == "v2", bool(host.get("serviceIsRemote"))
    env = dict(engine.env)
    if not elsewhere:
        # Over the system's settings, from podman 4.4 on; the other in their place.
        env |= setting("CONTAINERS_CONF_OVERRIDE", "containers-override.conf", PODMAN_CONF)
        env |= {} if unified else setting("CONTAINERS_CONF", "containers.conf", PODMAN_V1_CONF)
    return replace(
        engine,
        version=str(version.get("Version") or ""),
        env=env,
        unified=unified,
        rootless=bool(_mapping(host.get("security")).get("rootless")),
        elsewhere=elsewhere,
    )


def setting(variable: str, name: str, text: str) -> dict[str, str]:
    """A file of ours for podman to read, unless the user names one."""
    if variable in os.environ:
        return {}
    path = cache_folder() / name
    if not path.exists() or path.read_text() != text:  # another farmctl's podman may be reading it
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {variable: str(path)}


def address(engine: Engine) -> str:
    """Where the client looks for its engine, "" where it does not say."""
    if engine.name == "podman":
        return os.environ.get("CONTAINER_HOST", "")
    # As DOCKER_HOST, else the current context, says.
    asked = engine.run("context", "inspect", "--format", "{{.Endpoints.docker.Host}}", check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def refuse_remote(engine: Engine, where: str) -> None:
    """Raises StageError when the client is set to an engine on another machine: the farm's door would open there."""
    host = urlsplit(where).hostname or ""
    if host and not loopback(host):
        docker = engine.name == "docker"
        hint = "unset DOCKER_HOST, docker context use default" if docker else "unset CONTAINER_HOST"
        raise StageError(f"{engine.name} is set to the engine of another machine: {where}", hint=hint)


def loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def kind_environment(
    engine: Engine, kubeconfig: Path, extra: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """What kind and kubectl run with: our engine, our kubeconfig, never the user's.

    Where a proxy is set kind passes it on to the nodes, and adds the cluster's ranges to what goes without; their own
    loopback, where the control plane's health is asked, it leaves out.
    """
    direct = {}
    if any(os.environ.get(name) or os.environ.get(name.lower()) for name in PROXIES):
        wanted = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
        direct = dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(filter(None, (wanted, *LOOPBACK))))
    return {**os.environ, **direct, **engine.env, "KUBECONFIG": str(kubeconfig), **dict(extra)}
