"""Exports what a person needs to see why an end-to-end test failed: the farm's own words, the cluster's, its nodes'.

An export that fails says so in its own file and never hides the failure that asked for it.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import clusters
from farmctl.errors import FarmctlError
from farmctl.testbeds.kind.cluster.cluster import export_logs

FOLDER = "exported"  # all is below it, so that a run can remove what the one before left
STEP_S = 120
WHY = "why"  # .ci/phases.py looks for such lines
LINES = "2000"  # of each log: bounded, whatever a test did


def reason(report: pytest.TestReport) -> str:
    """One line: what was wrong, without the traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else report.longreprtext.strip()).splitlines()[0]


def of_a_test(name: str, logs: Path) -> Path:
    """Status, every process's log and, on Kubernetes, objects and events, into a folder named after the test."""
    folder = logs / FOLDER / re.sub(r"[^\w.-]+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    status = said("status", "-o", "json")
    (folder / "status.json").write_text(status)
    for process in ("proxy", *pods(status)):
        (folder / f"{process}.log").write_text(said("logs", process, "--tail", LINES))
    if (words := kubectl()) is not None:
        what = "nodes,deployments,replicasets,pods,endpointslices,events"
        (folder / "objects.txt").write_text(run([*words, "get", what, "-n", "farm", "-o", "wide"]))
        (folder / "proxy-before.log").write_text(
            run([*words, "logs", "deployment/proxy", "-n", "farm", "--previous", f"--tail={LINES}"])
        )
    else:
        (folder / "supervisor.log").write_text(said("logs", "supervisor", "--tail", LINES))
    print(f"\nwhat it left to look at: {folder}", file=sys.stderr)
    return folder


def was_exported(logs: Path) -> bool:
    return (logs / FOLDER).exists()


def of_nodes(logs: Path) -> None:
    """`kind export logs`; on the local testbed there are no nodes."""
    try:
        there = clusters.opened()
    except FarmctlError as error:
        print(f"could not export the nodes' logs: {error}", file=sys.stderr)
        return
    if there is not None:
        export_logs(there, clusters.say)
        keep(there.folder.logs, logs / FOLDER / "nodes")


def of_a_failed_up(state: Path, logs: Path) -> None:
    """The nodes' logs that `up` exported itself, or what the local farm's processes said."""
    keep(state / "kind" / "logs", logs / FOLDER / "up" / "nodes")
    keep(state / "logs", logs / FOLDER / "up" / "local")


def keep(found: Path, folder: Path) -> None:
    if found.is_dir():
        shutil.copytree(found, folder, dirs_exist_ok=True, symlinks=True)


def pods(status: str) -> list[str]:
    try:
        return [str(pod["name"]) for pod in json.loads(status)["pods"]]
    except (ValueError, KeyError):
        return []


def said(*words: str) -> str:
    return run([sys.executable, "-m", "farmctl", *words])


def run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_S, check=False)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` did not end within {STEP_S} s\n"
    return done.stdout or done.stderr


def kubectl() -> list[str] | None:
    """How to call kubectl for the farm on kind; None where the farm is local or none is up."""
    try:
        there = clusters.opened()
    except FarmctlError:
        return None
    return there.kubectl.command() if there else None
