"""`.ci/phases.py` in a checkout of stand-ins: what runs, in which order, what fails it, what is left."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parent.parent.parent / ".ci"
CALL = 'echo "$(basename "$0") $* ${FARMCTL_STATE:+own-state}${RETRY:+ retry}" >> "$CALLS"\n'
MAKEFILE = """\
lint test:
\t@echo "make $@" >> "$$CALLS"; echo "output of $@"; test "$$BREAK" != "$@"
e2e:
\t@echo "make $@ $(TESTBED) $${FARMCTL_STATE:+own-state} retry=$(RETRY)" >> "$$CALLS"
\t@echo "RERUN e2e/test_scenarios.py::test_scenario[$(TESTBED)]"
\t@if [ "$$BREAK" = "e2e $(TESTBED)" ]; then mkdir -p $$FARMCTL_E2E_LOGS/exported/a_test; \
\t echo "what the proxy said" > $$FARMCTL_E2E_LOGS/exported/a_test/proxy.log; exit 1; fi
\t@if [ "$$BREAK" = hang ]; then sleep 300 & echo $$! > sleeping; wait; fi
clean:
\t@echo "make clean" >> "$$CALLS"
"""


class Checkout:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.calls = root, root / "calls"
        for folder in (".ci", "scripts", ".venv/bin"):
            (root / folder).mkdir(parents=True)
        shutil.copy2(CI / "phases.py", root / ".ci")
        self.script(".ci/machine", CALL)
        self.script("scripts/setup", CALL)
        self.script(
            ".venv/bin/farmctl",
            CALL
            + 'if [ "$BREAK" = "$1" ]; then echo "mend: do this" >&2; exit 3; fi\n[ $1 != images ] || sleep 0.5\n',
        )
        (root / "Makefile").write_text(MAKEFILE)
        self.env = {**os.environ, "CALLS": str(self.calls), "BREAK": ""}
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


def test_all_that_passes_is_told_and_cleaned_up(checkout):
    done = checkout.run()
    assert done.returncode == 0, done.stdout + done.stderr
    called = checkout.called()
    assert called[:3] == ["machine", "setup", "farmctl doctor --testbed kind own-state"]
    assert set(called[3:5]) == {"farmctl images build", "make lint"}  # at the same time
    assert called[5:] == [
        "make test",
        "make e2e local own-state retry=1",
        "make e2e kind own-state retry=1",
        "farmctl down own-state",
        "farmctl images prune",
        "make clean",
    ]
    summary = done.stdout.partition("PHASE")[2]
    for phase in ("lint", "test", "e2e local", "images", "e2e kind", "farm taken down"):
        assert f"\n{phase} " in summary
    assert "passed (beside others)" in summary
    assert "tried a second time: e2e/test_scenarios.py::test_scenario[kind]" in summary


@pytest.mark.parametrize("broken", ["lint", "test", "e2e local", "e2e kind"])
def test_whatever_fails_fails_the_run_and_stops_nothing_else(checkout, broken):
    done = checkout.run(BREAK=broken)
    assert done.returncode == 1
    assert f"FAILED: {broken}" in done.stdout
    assert "make e2e kind own-state retry=1" in checkout.called()
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
    assert "make e2e local own-state retry=1" in called  # the rest is still told
    assert not [line for line in called if "e2e kind" in line or "images" in line]


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
    assert "e2e local" in done.stdout.partition("FAILED: ")[2]
    assert "time is up" in done.stdout
    assert "not run: time is up" in done.stdout.partition("PHASE")[2]
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
