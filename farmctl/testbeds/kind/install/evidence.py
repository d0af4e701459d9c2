"""Keeps what a farm in somebody else's cluster said before it failed: its own pods' objects, events and logs, no more.

(A cluster of farmctl's own has `kind export logs`.) A failure of it must not hide the fault that asked for it.
"""

from pathlib import Path

from farmctl.errors import StageError
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.install.applying import SELECTOR

FILES = {
    "pods.yaml": ("get", "pods", "-l", SELECTOR, "-o", "yaml"),
    "events.txt": ("get", "events", "--sort-by=.metadata.creationTimestamp"),
    "logs.txt": (
        "logs",
        "-l",
        SELECTOR,
        "--all-containers",
        "--prefix",
        "--tail=-1",
        "--max-log-requests=200",
    ),
}


def export(kubectl: Kubectl, namespace: str, folder: Path, say: Say) -> None:
    """Write FILES under ``folder``; one that the cluster does not give is left out, and said."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in FILES.items():
        try:
            (folder / name).write_text(kubectl(*words, "-n", namespace, timeout_s=60))
        except (StageError, OSError) as error:
            say(f"no {name}: {str(error).strip().splitlines()[-1]}")
    say(f"what its pods said is under {folder}")
