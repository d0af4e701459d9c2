"""The two proxies under test behind one face: the farm's own, and HAProxy as Debian ships it.

Both get one core, one door, the same pods, and as many descriptors; neither is tuned against the other.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from farmctl.bench.fakes.fake_pods import address
from farmctl.bench.fakes.fake_slices import NAMESPACE, PORT_NAME, SERVICE
from farmctl.bench.load import processes
from farmctl.bench.load.processes import Cores, FakeFarm, Usage
from farmctl.errors import StageError

PYTHON_SETTING = "FARMCTL_BENCH_PYTHON"
FARM, HAPROXY = "farm", "haproxy"


@dataclass(slots=True)
class Contender:
    """A running proxy: where its door is, and the process to account."""

    name: str
    door: tuple[str, int]
    process: subprocess.Popen[str]
    log: Path
    admin: str = ""

    def usage(self) -> Usage:
        return Usage.of(self.process.pid)


@contextlib.contextmanager
def farm_proxy(
    farm: FakeFarm, cores: Cores, *, env: dict[str, str] | None = None, profile: Path | None = None
) -> Iterator[Contender]:
    """Run the farm's proxy until the block ends; with ``profile`` under cProfile, written there at its end."""
    door, admin = free_port(), free_port()
    settings = {
        "FARMPROXY_DOOR": f"127.0.0.1:{door}",
        "FARMPROXY_ADMIN": f"127.0.0.1:{admin}",
        "FARMPROXY_KUBE_API": f"http://127.0.0.1:{farm.api_port}",
        "FARMPROXY_POOLS": f"default={SERVICE}",
        "FARMPROXY_NAMESPACE": NAMESPACE,
        "FARMPROXY_PORT_NAME": PORT_NAME,
        "FARMPROXY_LINGER_S": "0",
        "FARMPROXY_DRAIN_S": "1",
        **(env or {}),
    }
    under = ["-m", "cProfile", "-o", str(profile)] if profile else []
    python, path = interpreter()
    settings["PYTHONPATH"] = settings.get("PYTHONPATH", path)
    command = [python, *under, "-m", "farmproxy"]
    with tempfile.TemporaryDirectory(prefix="farmctl-bench-") as folder:
        log = Path(folder, "proxy.log")
        with processes.ending(
            processes.start(command, cores.proxy, env=settings, log=log), limit_s=60 if profile else 10
        ) as process:
            contender = Contender(FARM, ("127.0.0.1", door), process, log, f"http://127.0.0.1:{admin}")
            _wait_open(contender, lambda: processes.http_ok(f"{contender.admin}/readyz"))
            yield contender


def interpreter() -> tuple[str, str]:
    """Return the Python that runs the proxy, and its path: this one, or the one named in FARMCTL_BENCH_PYTHON.

    Builds of one version differ by a third in speed (profile-guided or not), and the images have Debian's.
    """
    # Packages only: another build brings its own standard library.
    packages = [path for path in sys.path if path and not Path(path).is_relative_to(sys.base_prefix)]
    return os.environ.get(PYTHON_SETTING) or sys.executable, os.pathsep.join(packages)


@contextlib.contextmanager
def haproxy(
    farm: FakeFarm, cores: Cores, *, server: str = "", backend: str = "", defaults: str = ""
) -> Iterator[Contender]:
    """Run HAProxy until the block ends; the strings are further words of its configuration."""
    binary = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/sbin")
    if binary is None:
        raise StageError("haproxy is not installed", hint="sudo apt-get install haproxy")
    door = free_port()
    with tempfile.TemporaryDirectory(prefix="farmctl-bench-") as folder:
        path = Path(folder, "haproxy.cfg")
        path.write_text(configuration(farm, door, server=server, backend=backend, defaults=defaults))
        log = Path(folder, "haproxy.log")
        command = [binary, "-db", "-f", str(path)]
        with processes.ending(processes.start(command, cores.proxy, log=log)) as process:
            contender = Contender(HAPROXY, ("127.0.0.1", door), process, log)
            _wait_open(contender, lambda: _accepts(door))
            yield contender


def configuration(farm: FakeFarm, door: int, *, server: str, backend: str, defaults: str) -> str:
    """Write HAProxy's configuration: one thread, one job a server, first free server first."""
    servers = "\n".join(
        f"  server p{i} {address(i)}:{farm.pod_port} maxconn 1 {server}" for i in range(farm.pods)
    )
    return f"""global
  nbthread 1
  maxconn 4000
defaults
  mode http
  option httpclose
  http-reuse never
  timeout connect 2s
  timeout client 300s
  timeout server 300s
  timeout queue 300s
  timeout tunnel 900s
{defaults}
frontend door
  bind 127.0.0.1:{door} backlog 4096
  http-request deny deny_status 404 if {{ query -m sub pool=nowhere }}
  http-request return status 200 content-type application/json string "{{}}" if {{ path /json/version }}
  default_backend pods
backend pods
  balance first
{backend}
{servers}
"""


def free_port() -> int:
    """Return a port that was free a moment ago (what is started next has to bind it itself)."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _wait_open(contender: Contender, is_open: Callable[[], bool]) -> None:
    def state() -> bool:
        if contender.process.poll() is not None:
            raise StageError(f"{contender.name} ended at its start: {contender.log.read_text()[-2000:]}")
        return is_open()

    processes.wait_for(state, f"{contender.name} serves")
