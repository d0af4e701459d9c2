"""`.ci/dockerd` where there is a Docker, and where there is no way to one."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / ".ci/dockerd"
TOOLS = (
    "bash",
    "id",
    "grep",
    "mkdir",
    "dirname",
    "tail",
    "cat",
    "rm",
    "sleep",
    "setsid",
    "seq",
    "ln",
    "mktemp",
)
TOOLS += ("chmod", "kill", "sort", "xargs")


@pytest.fixture
def machine(tmp_path):
    """A machine with the everyday programs, and those that the test writes."""
    for tool in TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")

    def has(name, body):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)

    def run(*words):
        env = {"PATH": str(tmp_path), "HOME": str(tmp_path / "home")}
        return subprocess.run([SCRIPT, *words], env=env, capture_output=True, text=True, check=False)

    return has, run


def test_the_machines_own_docker_is_left_as_it_is(machine, tmp_path):
    has, run = machine
    has("docker", "echo '28.5.2 Community Engine'")
    done = run("start", str(tmp_path / "run"))
    assert (done.returncode, done.stdout) == (0, "")
    assert not (tmp_path / "run").exists()


DOWN = {
    "no docker": None,
    "a client whose daemon is down ends badly": "echo ' '; exit 1",
    "or well": "echo ' '",
    "podman's service": "echo '5.4.0 Apache-2.0'",
}


@pytest.mark.parametrize("docker", DOWN.values(), ids=DOWN)
def test_a_machine_with_no_way_to_one_says_why_and_keeps_nothing(machine, tmp_path, docker):
    has, run = machine
    if docker is not None:
        has("docker", docker)
    has("id", "echo 0")
    has("runc", "true")
    done = run("start", str(tmp_path / "run"))
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith("dockerd: none here: no engine answers, and no apt-get")
    has("id", "echo 1000")
    assert "only root can start one" in run("start", str(tmp_path / "run")).stderr
    assert not (tmp_path / "run").exists()


def test_one_that_does_not_start_is_told_by_its_own_words_and_leaves_nothing(machine, tmp_path):
    has, run = machine
    has("docker", "exit 1")
    has("id", "echo 0")
    has("runc", "true")
    programs = tmp_path / "home/.cache/farmctl/dockerd-trixie/usr/sbin"
    programs.mkdir(parents=True)
    (programs / "dockerd").write_text("#!/bin/bash\necho 'level=fatal no overlay here' >&2; exit 1\n")
    (programs / "dockerd").chmod(0o755)
    done = run("start", str(tmp_path / "run"))
    assert done.returncode == 4
    assert "no overlay here" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("breaks", ["", "scenario mid-job-kill"])
def test_a_farm_on_docker_takes_podmans_images_and_goes_down_whatever_happens(tmp_path, breaks):
    root, calls = tmp_path / "checkout", tmp_path / "calls"
    for folder in (".ci", ".venv/bin", "path"):
        (root / folder).mkdir(parents=True)
    shutil.copy2(SCRIPT.with_name("on_docker"), root / ".ci")
    note = f'echo "$(basename "$0") $* $KIND_EXPERIMENTAL_PROVIDER" >> {calls}\n'
    scripts = {
        ".venv/bin/farmctl": f'{note}[ "$1" != images ] || printf "here\\nmoved\\nabsent\\n"; [ "$*" != "$BREAKS" ]',
        "path/docker": f'case "$*" in "image inspect here") exit 0;; load) {note} cat >/dev/null;; *) exit 1;; esac',
        "path/podman": f'case "$*" in "image exists absent") exit 1;; save*) {note} echo tar;; esac',
    }
    for path, body in scripts.items():
        (root / path).write_text(f"#!/bin/bash\n{body}\n")
        (root / path).chmod(0o755)
    env = {"PATH": f"{root}/path:/usr/bin:/bin", "BREAKS": breaks}
    done = subprocess.run([root / ".ci/on_docker"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is (not breaks)
    told = [line.strip() for line in calls.read_text().splitlines()]
    assert told[0] == "farmctl images list -o name podman"
    assert set(told[1:3]) == {"podman save --format docker-archive moved", "docker load"}
    assert told[3] == "farmctl up --testbed kind --name farm-ci-docker docker"
    assert told[-1] == "farmctl down docker"
    assert ("farmctl status docker" in told) is (not breaks)
