"""What a farm on Kubernetes keeps between two commands, in a folder of its own under farmctl's state folder.

It is written before anything is made, so that the next ``up`` or ``down`` finds what an interrupted one left.
"""

import fcntl
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from farmctl.errors import StageError
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.overrides import Overrides
from farmctl.testbeds.state_folders import default_path, explained

KEY_BYTES = 32


class Installed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The farm in a cluster: its own (``shape``), or one that was there before (``context``).

    ``phase`` is "creating" until the nodes have been Ready once: a cluster left there is no cluster yet.
    ``agent_env`` and ``proxy_env`` are the settings that differ from the defaults.
    ``addresses`` are the nodes' last known ones, by name: a restarted node comes back under its old one.
    ``engine`` is the key of the one that the nodes are containers of: only there are they found again, whatever else answers;
    ``made_network``: kind's network there came with this cluster, and goes with it when nobody else is on it.
    ``pull_secret`` and what follows it is what another cluster's owner asks for (``farmctl up --context``).
    """

    phase: Literal["creating", "installing", "up"]
    namespace: str = "farm"
    shape: Shape | None = None
    context: str = ""
    kubeconfig: str = ""
    images: dict[str, str] = {}
    pods: int = 4
    agent_env: dict[str, str] = {}
    proxy_env: dict[str, str] = {}
    addresses: dict[str, str] = {}
    own_namespace: bool = True
    engine: str = ""
    made_network: bool = False
    pull_secret: str = ""
    seccomp_profile: str = ""
    restricted: bool = False
    architectures: tuple[str, ...] = ()

    @property
    def overrides(self) -> Overrides:
        return Overrides(self.agent_env, self.proxy_env)

    def with_overrides(self, asked: Overrides, say: Say) -> "Installed":
        """With what was asked for, and what changes by it said."""
        wanted = asked.over(self.overrides)
        for change in wanted.changes(self.overrides):
            say(f"setting {change}")
        return msgspec.structs.replace(self, agent_env=dict(wanted.agent), proxy_env=dict(wanted.proxy))


class KindFolder:
    """``<state folder>/kind``: the record, the kubeconfig, the agent key, kind's configuration and exported logs."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path() / "kind"
        self.record = self.path / "testbed.json"
        self.kubeconfig = self.path / "kubeconfig"
        self.kubectl = self.path / "kubectl"
        self.agent_key = self.path / "agent.key"
        self.tokens = self.path / "tokens"
        self.config = self.path / "kind.yaml"
        self.fence = self.path / "kubelet-fence.conf"
        self.manifests = self.path / "manifests"
        self.logs = self.path / "logs"

    @contextmanager
    def held(self) -> Iterator[None]:
        """One command at a time changes this farm. Raises StageError when another does.

        A command that ends before anything was recorded leaves no folder behind.
        """
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StageError(
                    "another farmctl is changing this farm", hint="wait for it to end"
                ) from error
            try:
                yield
            finally:
                if not self.record.exists():
                    self.remove()

    def read(self) -> Installed | None:
        """Return what is installed, or None. Raises StageError when the record is none of this version."""
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=Installed)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise StageError(
                f"{self.record} is no record of this farmctl: {error}",
                hint=f"kind delete cluster --name farm; rm -r {self.path}",
            ) from error

    def engine(self) -> str:
        """The engine that this farm's nodes are in, "" where there are none."""
        there = self.read()
        return "" if there is None else there.engine

    def write(self, installed: Installed) -> Installed:
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = self.record.with_suffix(".partial")
            partial.write_bytes(msgspec.json.format(msgspec.json.encode(installed)))
            partial.replace(self.record)
        return installed

    def ensure_key(self) -> Path:
        """The secret that proxy and agents share, made once."""
        if not self.agent_key.exists():
            self.agent_key.touch(mode=0o600)
            self.agent_key.write_text(secrets.token_hex(KEY_BYTES))
        return self.agent_key

    def keep_tokens(self, text: str) -> None:
        """What the farm's callers show, one ``name:token`` a line."""
        self.tokens.touch(mode=0o600)
        self.tokens.write_text(text)

    def token(self) -> str:
        """One that farmctl itself shows at the door; "" when the door asks for none."""
        lines = self.tokens.read_text().splitlines() if self.tokens.exists() else []
        shown = [
            line.partition(":")[2].strip()
            for line in lines
            if line.strip() and not line.lstrip().startswith("#")
        ]
        return shown[0] if shown else ""

    def remove(self) -> None:
        """Remove all of it; the folder above too when nothing else is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.path.parent.rmdir()
