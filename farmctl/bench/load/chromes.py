"""The two Chromes of the job benchmark: one behind a whole farm, one bare with the very same command line and surroundings.

The bare one is started anew for each job, as the farm's is: a browser that is already warm would be another job.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from farmctl import chromium
from farmctl.bench.load import processes
from farmctl.bench.load.processes import DIRECT, Cores, FakeFarm
from farmctl.bench.load.proxies_under_test import farm_proxy, free_port
from farmctl.errors import StageError

AGENT_HOST = "127.8.0.1"
POD = "farm/pod-real/uid-real"
_LISTENING = re.compile(r"DevTools listening on ws://([^/]+)/")


class RealFarm:
    """A farm of one pod: the agent, a control plane that lists it, and the proxy."""

    def __init__(self, door: str, agent: str, chrome: Sequence[str]) -> None:
        self.door = door
        self.agent = agent
        self.chrome = chrome  # the command line of the agent's Chrome

    def wait_free(self) -> float:
        """Wait until the pod is free again; return the seconds that took."""
        began = time.monotonic()
        with DIRECT.open(f"{self.agent}/readyz?wait=30", timeout=40) as reply:
            json.load(reply)
        return time.monotonic() - began


@contextlib.contextmanager
def real_farm() -> Iterator[RealFarm]:
    """Run a whole farm with one real Chrome until the block ends."""
    every = frozenset(os.sched_getaffinity(0))
    cores = Cores(every, every)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="farmctl-job-") as folder:
        env = {
            "FARMAGENT_LISTEN": f"{AGENT_HOST}:{port}",
            "FARMAGENT_POD": POD,
            "FARMAGENT_CHROME": str(chromium.find()),
            "FARMAGENT_WORK_DIR": str(Path(folder, "work")),
        }
        command = [sys.executable, "-m", "farmagent"]
        log = Path(folder, "agent.log")
        agent_url = f"http://{AGENT_HOST}:{port}"
        with processes.ending(processes.start(command, every, env=env, log=log), limit_s=15) as agent:

            def free() -> bool:
                if agent.poll() is not None:
                    raise StageError(f"the agent ended at its start: {log.read_text()[-2000:]}")
                return processes.http_ok(f"{agent_url}/readyz")

            processes.wait_for(free, "the agent's Chrome answers", limit_s=60)
            listed = f"{AGENT_HOST}:{port}/{POD}"
            with FakeFarm(cores, pods=0, listed=listed) as plane, farm_proxy(plane, cores) as proxy:
                yield RealFarm(f"http://127.0.0.1:{proxy.door[1]}", agent_url, chrome_of(agent.pid))


def chrome_of(agent: int) -> list[str]:
    """Return the command line of the browser process below the agent."""
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # Chrome rewrites its own title, with spaces between the words; a flag's value has none here.
            words = (proc / "cmdline").read_bytes().decode().replace("\0", " ").split()
            stat = (proc / "stat").read_text().rpartition(")")[2].split()
            browser = any(word.startswith("--user-data-dir=") for word in words)
            if int(stat[1]) == agent and browser and not any(word.startswith("--type=") for word in words):
                return words
    raise StageError("the agent's Chrome was not found among its children")


@contextlib.contextmanager
def bare_chrome(command: Sequence[str]) -> Iterator[str]:
    """Run a Chrome with this command line on a fresh directory; gives its HTTP endpoint once it answers."""
    folder = tempfile.mkdtemp(prefix="farmctl-bare-")
    words = [
        word for word in command if not word.startswith(("--user-data-dir=", "--remote-debugging-port="))
    ]
    words += [f"--user-data-dir={folder}", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [*processes.dying_with_us(), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **_own_places(folder)},
        start_new_session=True,
    )
    try:
        endpoint = f"http://{_listening(process)}"
        processes.wait_for(lambda: processes.http_ok(f"{endpoint}/json/version"), "the bare Chrome answers")
        yield endpoint
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stderr:
            process.stderr.close()
        shutil.rmtree(folder, ignore_errors=True)


def _own_places(folder: str) -> dict[str, str]:
    """What the agent, too, tells its Chrome: nothing of another program's, no bus to ask."""
    return {
        "HOME": folder,
        "TMPDIR": folder,
        "XDG_CONFIG_HOME": f"{folder}/.config",
        "XDG_CACHE_HOME": f"{folder}/.cache",
        "XDG_DATA_HOME": f"{folder}/.local/share",
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        "DBUS_SYSTEM_BUS_ADDRESS": "disabled:",
    }


def _listening(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := _LISTENING.search(line):
            return found[1]
    raise StageError("the bare Chrome ended before it listened")
