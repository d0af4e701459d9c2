"""kubectl, always with a kubeconfig and a context named: the user's current context is neither read nor switched."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmctl.testbeds.kind.programs import run

FIELD_MANAGER = "farmctl"


@dataclass(frozen=True, slots=True)
class Kubectl:
    """``kubeconfig`` and ``context`` are "" only where the user's own defaults are meant (``up --context`` sets one)."""

    program: Path
    kubeconfig: str = ""
    context: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, stdin: str = "", timeout_s: float = 120, hint: str = "") -> str:
        """Run ``kubectl WORDS``; its stdout. Raises StageError."""
        command = [str(self.program)]
        command += [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        command += [f"--context={self.context}"] if self.context else []
        env = {**os.environ, **self.env}
        return run([*command, *words], env=env, stdin=stdin, timeout_s=timeout_s, hint=hint)

    def get(self, *words: str) -> list[dict[str, Any]]:
        """The objects of ``kubectl get WORDS -o json``; what does not exist is left out."""
        return objects(self("get", *words, "--ignore-not-found", "-o", "json"))


def objects(answer: str) -> list[dict[str, Any]]:
    """The objects in what ``-o json`` printed: a list, a single object, or nothing."""
    if not answer.strip():
        return []
    found = json.loads(answer)
    items: list[dict[str, Any]] = (
        found["items"] if found.get("kind") == "List" or "items" in found else [found]
    )
    return items
