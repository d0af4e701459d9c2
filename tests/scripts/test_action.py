"""`action.yml`, as a CI job meets it: its own shell steps, run by bash on the local testbed, GitHub's files played."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from farmctl import chromium

CHECKOUT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((CHECKOUT / "action.yml").read_text())
DOOR = "127.0.0.1:19522"

pytestmark = [pytest.mark.chrome, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def action_path(tmp_path_factory):
    """What GitHub checks out: the repository's files, nothing of this checkout's environment."""
    path = tmp_path_factory.mktemp("action") / "farmctl"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        if (CHECKOUT / name).is_file():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, path / name)
    return path


class Job:
    """One job of a user's, with this action as a step of it."""

    def __init__(self, folder: Path, action_path: Path, **inputs: str) -> None:
        defaults = {name: each.get("default", "") for name, each in ACTION["inputs"].items()}
        self.inputs = {**defaults, "door": DOOR, "pods": "1", **inputs}
        self.action_path, self.folder, self.failed = action_path, folder, False
        self.outputs: dict[str, str] = {}
        self.ran: list[str] = []
        self.said = ""
        kept = (
            "HOME",
            "LANG",
            "XDG_CACHE_HOME",
            "UV_DEFAULT_INDEX",
            "PIP_INDEX_URL",
            "SSL_CERT_FILE",
            "PIP_CERT",
        )
        self.env = {name: os.environ[name] for name in kept if name in os.environ}
        self.env |= {
            "PATH": os.environ["PATH"], "RUNNER_TEMP": str(folder), "FARMCTL_STATE": str(folder / "state"),
            "FARMCTL_NETWORK": "127.0.77", "FARMCTL_CHROME": str(chromium.find()),
        }  # fmt: skip
        for name in ("OUTPUT", "ENV", "PATH"):
            (folder / name).touch()
            self.env[f"GITHUB_{name}"] = str(folder / name)

    def filled(self, text: str) -> str:
        known = {f"inputs.{name}": value for name, value in self.inputs.items()}
        known |= {f"steps.up.outputs.{name}": value for name, value in self.outputs.items()}
        known["github.action_path"] = str(self.action_path)
        return re.sub(r"\$\{\{ *(.+?) *\}\}", lambda found: known.get(found[1], ""), text)

    def wanted(self, condition: str) -> bool:
        """The few words of GitHub's expressions that this action uses; success() is the one without any."""
        if not re.search(r"\b(always|failure)\(\)", condition):
            condition = f"success() && {condition}" if condition else "success()"
        python = re.sub(r"inputs\.(\w+)", r"inputs['\1']", condition).replace("&&", "and")
        words = {"always": lambda: True, "failure": lambda: self.failed, "success": lambda: not self.failed}
        return bool(eval(python, {"__builtins__": {}}, {**words, "inputs": self.inputs}))

    def go(self) -> None:
        for step in ACTION["runs"]["steps"]:
            if not self.wanted(step.get("if", "")):
                continue
            self.ran.append(step["name"])
            assert "${{" not in step["run"], "a value in a script is an injection"
            given = {name: self.filled(value) for name, value in step.get("env", {}).items()}
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.folder, env={**self.env, **given}, capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            self.said += done.stdout + done.stderr
            self.failed |= done.returncode != 0
            self.outputs |= self.read("OUTPUT")
            self.env |= self.read("ENV")
            added = (self.folder / "PATH").read_text().split()
            self.env["PATH"] = ":".join([*added, os.environ["PATH"]])

    def read(self, name: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (self.folder / name).read_text().splitlines())

    def farmctl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["farmctl", *words], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )


def test_a_farm_stays_up_for_the_steps_that_follow(tmp_path, action_path):
    job = Job(tmp_path, action_path)
    try:
        job.go()
        assert not job.failed, job.said
        assert job.ran == ["Install farmctl", "Bring the farm up"]
        assert job.outputs == {"door": f"http://{DOOR}", "admin": "http://127.0.0.1:19523"}
        assert job.env["FARMCTL_DOOR"] == f"http://{DOOR}"
        drawn = job.farmctl("render", "http://127.0.0.1:19523/", "--format", "text")
        assert "farm" in drawn.stdout.lower(), drawn.stderr
    finally:
        assert job.farmctl("down").returncode == 0


@pytest.mark.parametrize(
    ("script", "failed"), [('curl -fsS "$FARMCTL_DOOR/json/version"', False), ("echo so; false", True)]
)
def test_a_script_of_the_job_gets_a_farm_that_is_gone_after_it(tmp_path, action_path, script, failed):
    job = Job(tmp_path, action_path, run=script)
    job.go()
    assert job.failed is failed, job.said
    assert ("What the farm says" in job.ran) is failed
    assert ("pool default: 0 leased" in job.said) is failed
    assert ("webSocketDebuggerUrl" in job.said) is not failed
    assert job.ran[-1] == "Take the farm down"
    assert not (tmp_path / "state").exists()


def test_a_farm_that_does_not_come_up_fails_the_job_and_says_why(tmp_path, action_path):
    job = Job(tmp_path, action_path, door="nowhere")
    job.go()
    assert job.failed
    assert "'nowhere' is no HOST:PORT" in job.said
    assert job.outputs == {}
