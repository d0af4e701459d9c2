"""What a running local testbed is made of: written by ``farmctl up``, read by the supervisor, never changed after."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from farmctl.testbeds.base import Setup

DOOR = "127.0.0.1:9222"
ADMIN = "127.0.0.1:9223"
NETWORK = "127.0.1"  # pod N listens on 127.0.1.N
NETWORK_VARIABLE = "FARMCTL_NETWORK"  # another /24 of 127.0.0.0/8, for a second farm on one machine
WORK_PREFIX = "farmctl-"  # of the work folder in the temporary folder, the token follows


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """``work`` holds Chrome's profiles; it lies outside the private state folder because Chrome has a uid of its own."""

    state: Path
    work: Path
    token: str
    chrome: str
    setup: Setup = field(default_factory=Setup)
    door: str = DOOR
    admin: str = ADMIN
    network: str = NETWORK
    agent_port: int = 9222
    namespace: str = "farm"
    service: str = "browsers"
    pool: str = "default"
    port_name: str = "cdp"
    nodes: tuple[str, ...] = ("node-a", "node-b")
    agent_command: tuple[str, ...] = (sys.executable, "-m", "farmagent")
    proxy_command: tuple[str, ...] = (sys.executable, "-m", "farmproxy")
    grace_s: float = 900.0  # terminationGracePeriodSeconds: the default lease's longest time
    bookmark_s: float = 5.0
    history: int = 1000

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self, enc_hook=str))

    @classmethod
    def load(cls, path: Path) -> "LocalSettings":
        """Raises OSError or msgspec.ValidationError when there is none, or of another version."""
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_path)

    @classmethod
    def remembered(cls, path: Path) -> Setup:
        """The setup of the farm that is there or has crashed; the defaults where there is none that can be read."""
        try:
            return cls.load(path).setup
        except (OSError, msgspec.DecodeError):
            return Setup()


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)
