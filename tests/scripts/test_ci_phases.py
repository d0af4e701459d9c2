"""`.ci/phases.py` in a checkout of stand-ins: what runs, in which order, what fails it, what is left."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parent.parent.parent / ".ci"
SETUP = "mkdir -p .venv/bin && cp farmctl .venv/bin/farmctl\n"
CALL = 'echo "$(basename "$0") $* ${FARMCTL_STATE:+own-state}" >> "$CALLS"\n'
MAKEFILE = """\
lint test engines:
\t@echo "make $@ $$FARMCTL_TEST_ENGINES $$DOCKER_HOST" >> "$$CALLS"; echo "output of $@"; test "$$BREAK" != "$@"
e2e:
\t@echo "make $@ $(TESTBED) $$(basename $$FARMCTL_STATE) retry=$(RETRY) $(ARGS)" >> "$$CALLS"
\t@echo "why e2e/test_scenarios.py::test_scenario[$(TESTBED)]: not staged: no pod"
\t@echo "e2e/test_scenarios.py::test_scenario[$(TESTBED)] RERUN [ 62%]"
\t@echo "RERUN [ 62%]"
\t@echo "RERUN e2e/test_scenarios.py::test_scenario[$(TESTBED)]"
\t@if [ "$$BREAK" = "e2e $(TESTBED)" ]; then mkdir -p $$FARMCTL_E2E_LOGS/exported/a_test; \
\t echo "what the proxy said" > $$FARMCTL_E2E_LOGS/exported/a_test/proxy.log; exit 1; fi
\t@if [ "$$BREAK" = hang -a $(TESTBED) = kind ]; then sleep 300 & echo $$! > sleeping; wait; fi
clean:
\t@echo "make clean" >> "$$CALLS"
"""


LOCAL, KIND = "make e2e local local retry=1", "make e2e kind kind retry=1"
# Docker as `.ci/dockerd` starts it, where the machine has none.
DOCKERD = """\
echo "dockerd $1 $(basename $2) ${FARMCTL_STATE:+own-state}" >> "$CALLS"
[ "$BREAK" != dockerd ] || { echo "dockerd: none here: no mirror" >&2; exit 4; }
[ $1 = stop ] && rm -rf "$2" || { mkdir -p "$2"; [ "$OWN_DOCKER" = no ] && echo "DOCKER_HOST=unix://sock" || true; }
"""
ON_DOCKER = "on_docker  own-state"
ENGINES = "make engines docker podman unix://sock"
KIND_LANE = [
    "dockerd start dockerd",
    ENGINES,
    "farmctl doctor --testbed kind own-state",
    "farmctl images build",
    KIND,
    ON_DOCKER,
    "dockerd stop dockerd",
]
INSTALLED = "check_installed  own-state"
CLEANING = [*["farmctl down own-state"] * 3, "farmctl images prune"]


class Checkout:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.calls = root, root / "calls"
        for folder in (".ci", "scripts"):
            (root / folder).mkdir(parents=True)
        shutil.copy2(CI / "phases.py", root / ".ci")
        self.script(".ci/machine", CALL)
        self.script("scripts/setup", CALL + SETUP)
        self.script(".ci/dockerd", DOCKERD)
        self.script(".ci/on_docker", CALL + 'test "$BREAK" != on_docker\n')
        self.script("podman", "true")
        self.script("scripts/check_installed", CALL + 'test "$BREAK" != installed\n')
        self.script(
            "farmctl",
            CALL + 'if [ "$BREAK" = "$1" ]; then echo "mend: do this" >&2; exit 3; fi\n',
        )
        (root / "Makefile").write_text(MAKEFILE)
        # Not those of the `make test` that we may run in: its makes tell which folder they enter and leave.
        outside = {
            name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "DOCKER"))
        }
        self.temp = root / "temp"
        self.temp.mkdir()
        self.env = {**outside, "CALLS": str(self.calls), "BREAK": "", "TMPDIR": str(self.temp)}
        self.env |= {"OWN_DOCKER": "no", "PATH": f"{root}:{outside['PATH']}"}
        monkeypatch.delenv("FARMCTL_CI_KIND", raising=False)

    def script(self, path: str, text: str) -> None:
        (self.root / path).write_text(f"#!/bin/sh\n{text}")
        (self.root / path).chmod(0o755)

    def run(self, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(self.root / ".ci/phases.py")],
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def called(self) -> list[str]:
        return [line.strip() for line in self.calls.read_text().splitlines()]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    return Checkout(tmp_path, monkeypatch)


def test_what_a_killed_run_left_is_taken_down_first(checkout):
    left, lives = checkout.temp / "farmctl-ci-left", checkout.temp / "farmctl-ci-lives"
    (left / "dockerd").mkdir(parents=True)
    lives.mkdir()
    with open_folder(lives) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert checkout.run().returncode == 0
    assert checkout.called()[2:6] == [*["farmctl down own-state"] * 3, "dockerd stop dockerd"]
    assert list(checkout.temp.iterdir()) == [lives]


def test_what_cannot_be_taken_down_fails_the_run_and_is_kept(checkout):
    left = checkout.temp / "farmctl-ci-left"
    left.mkdir()
    done = checkout.run(BREAK="down")
    assert done.returncode == 1
    assert "left farmctl-ci-left" in done.stdout.partition("FAILED")[2]
    assert left.exists()


@contextmanager
def open_folder(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def test_all_that_passes_is_told_and_cleaned_up(checkout):
    done = checkout.run()
    assert done.returncode == 0, done.stdout + done.stderr
    called = checkout.called()
    assert called[:2] == ["machine", "setup"]
    rest, cleaning = called[2:-5], called[-5:]
    assert [line for line in rest if line not in KIND_LANE] == [
        "make lint",
        "make test",
        f"{LOCAL} --door 127.0.0.1:19222",
        INSTALLED,
    ]
    assert [line for line in rest if line in KIND_LANE] == KIND_LANE
    assert cleaning == [*CLEANING, "make clean"]
    summary = done.stdout.partition("PHASE")[2]
    for phase in (
        "lint",
        "test",
        "e2e local",
        "installed",
        "engines",
        "images",
        "e2e kind",
        "farm on docker",
    ):
        assert f"\n{phase} " in summary
    assert "passed (beside others)" in summary
    for testbed in ("local", "kind"):
        test = f"e2e/test_scenarios.py::test_scenario[{testbed}]"
        assert f"tried a second time: {test}: not staged: no pod\n" in summary
    assert summary.count("tried a second time") == 2


@pytest.mark.parametrize(
    "broken", ["lint", "test", "e2e local", "installed", "engines", "e2e kind", "on_docker"]
)
def test_whatever_fails_fails_the_run_and_stops_nothing_else(checkout, broken):
    done = checkout.run(BREAK=broken)
    assert done.returncode == 1
    assert f"FAILED: {broken.replace('on_docker', 'farm on docker')}" in done.stdout
    assert KIND in checkout.called()
    assert "farmctl down own-state" in checkout.called()
    assert "make clean" not in checkout.called()  # there is something to look at
    if broken.startswith("e2e"):
        assert "what the proxy said" in done.stdout


def test_machine_that_cannot_run_a_cluster_fails_loudly(checkout):
    done = checkout.run(BREAK="doctor")
    assert done.returncode == 1
    assert "mend: do this" in done.stdout
    assert "this machine lacks" in done.stdout
    called = checkout.called()
    assert f"{LOCAL} --door 127.0.0.1:19222" in called  # the rest is still told
    assert KIND not in called
    assert "farmctl images build" not in called


def test_a_machine_without_a_way_to_docker_says_so_and_tries_podman(checkout):
    done = checkout.run(BREAK="dockerd")
    assert done.returncode == 0
    assert "SKIPPED: nothing was tried on Docker: dockerd: none here: no mirror" in done.stdout
    called = checkout.called()
    assert "make engines podman" in called
    assert KIND in called
    assert ON_DOCKER not in called


def test_no_second_farm_where_the_cluster_was_on_docker_already(checkout):
    assert checkout.run(OWN_DOCKER="yes").returncode == 0
    called = checkout.called()
    assert "make engines docker podman" in called
    assert ON_DOCKER not in called


def test_a_farm_on_docker_waits_for_a_run_with_time_for_it(checkout):
    done = checkout.run(FARMCTL_CI_DOCKER_BEFORE_S="0")
    assert done.returncode == 0
    assert "SKIPPED: tried only where all before it took less than" in done.stdout.partition("PHASE")[2]
    called = checkout.called()
    assert ON_DOCKER not in called
    assert called[-6:][0] == "dockerd stop dockerd"


def test_checkout_that_was_set_up_before_stays_so(checkout):
    (checkout.root / ".venv/bin").mkdir(parents=True)
    shutil.copy2(checkout.root / "farmctl", checkout.root / ".venv/bin/farmctl")
    assert checkout.run().returncode == 0
    assert "make clean" not in checkout.called()


def test_output_of_the_two_lanes_is_not_mixed(checkout):
    done = checkout.run()
    shown = done.stdout.partition("=== the above is all of e2e kind")[0].splitlines()
    assert shown[-1] == "RERUN e2e/test_scenarios.py::test_scenario[kind]"


def test_skipping_kind_has_to_be_said_and_is_repeated(checkout):
    done = checkout.run(FARMCTL_CI_KIND="skip")
    assert done.returncode == 0
    assert "SKIPPED: FARMCTL_CI_KIND=skip" in done.stdout.partition("PHASE")[2]
    assert not [line for line in checkout.called() if "kind" in line or "images" in line]


def test_images_that_cannot_be_built_fail_the_run(checkout):
    done = checkout.run(BREAK="images")
    assert done.returncode == 1
    assert "its images could not be built" in done.stdout
    assert "mend: do this" in done.stdout  # the build's own words, although it ran beside others
    assert not [line for line in checkout.called() if "e2e kind" in line]


def test_nothing_hangs_past_the_limit_and_the_farm_is_taken_down(checkout):
    done = checkout.run(BREAK="hang", FARMCTL_CI_LIMIT_S="4")
    assert done.returncode == 1
    assert "e2e kind" in done.stdout.partition("FAILED: ")[2]
    assert "time is up" in done.stdout.partition("PHASE")[2]
    assert "farmctl down own-state" in checkout.called()
    assert is_gone(int((checkout.root / "sleeping").read_text()))


def test_interrupted_run_takes_the_farm_down_too(checkout):
    with subprocess.Popen(
        [sys.executable, str(checkout.root / ".ci/phases.py")],
        env={**checkout.env, "BREAK": "hang"},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        deadline = time.monotonic() + 30
        while not (checkout.root / "sleeping").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "interrupted" in said
    assert "farmctl down own-state" in checkout.called()
    assert is_gone(int((checkout.root / "sleeping").read_text()))


def is_gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
