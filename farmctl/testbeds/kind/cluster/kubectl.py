"""kubectl, always with a kubeconfig and a context named: the user's current context is neither read nor switched."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmctl.errors import StageError
from farmctl.testbeds.kind.cluster.programs import run

FIELD_MANAGER = "farmctl"
RUNNING_S = 10  # for a pod to be forwarded to


@dataclass(frozen=True, slots=True)
class Kubectl:
    """``kubeconfig`` and ``context`` are "" only where the user's own defaults are meant (``up --context`` sets one)."""

    program: Path
    kubeconfig: str = ""
    context: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, stdin: str = "", timeout_s: float = 120, hint: str = "") -> str:
        """Run ``kubectl WORDS``; its stdout. Raises StageError."""
        return run(self.command(*words), env=self.environment(), stdin=stdin, timeout_s=timeout_s, hint=hint)

    def command(self, *words: str) -> list[str]:
        named = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        named += [f"--context={self.context}"] if self.context else []
        return [str(self.program), *named, *words]

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.env}

    @contextmanager
    def forwarded(self, namespace: str, service: str, port: int) -> Iterator[str]:
        """`kubectl port-forward` from a free port of this host's loopback while the block runs; yields host:port.

        By way of the kubelet: it works where the API server's own network reaches no pod, and who calls it names an
        address. Raises StageError with kubectl's words.
        """
        with subprocess.Popen(
            self.command(
                "port-forward", "-n", namespace, f"service/{service}", f":{port}",
                "--address=127.0.0.1", f"--pod-running-timeout={RUNNING_S}s",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            text=True,
        ) as forward:  # fmt: skip
            try:
                assert forward.stdout is not None  # a pipe
                said: list[str] = []
                for line in forward.stdout:  # ends with the process
                    if found := re.match(r"Forwarding from (127\.0\.0\.1:\d+) ", line):
                        yield found[1]
                        return
                    said.append(line.strip())
                raise StageError(f"no way to the service {service} in {namespace}: {'; '.join(said)}")
            finally:
                forward.terminate()

    def get(self, *words: str) -> list[dict[str, Any]]:
        """The objects of ``kubectl get WORDS -o json``; what does not exist is left out."""
        return objects(self("get", *words, "--ignore-not-found", "-o", "json"))


def objects(answer: str) -> list[dict[str, Any]]:
    """The objects in what ``-o json`` printed: a list, single objects one after the other, or nothing."""
    found: list[dict[str, Any]] = []
    decoder, rest = json.JSONDecoder(), answer.strip()
    while rest:
        one, end = decoder.raw_decode(rest)
        found += one.get("items", [one])
        rest = rest[end:].lstrip()
    return found
