"""Settings of agents and proxy that differ from the defaults: asked for by name, checked by the programs themselves.

Which settings there are stands in one place, the programs' own ``--help``; whether a value can be used, their ``--check``
says. What places and names a farm's parts is the testbed's to say, and refused here.
"""

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from farmctl.errors import UsageError

PLACED = {
    "agent": ("LISTEN", "POD", "WORK_DIR", "KEY_FILE"),
    "proxy": (
        "POOLS", "NAMESPACE", "PORT_NAME", "DOOR", "ADMIN", "KUBE_API", "KUBE_TOKEN_FILE", "KUBE_CA_FILE", "AGENT_KEY_FILE",
    ),
}  # fmt: skip
# What a check needs besides, so that only what was asked for can be wrong.
BESIDES = {"agent": {}, "proxy": {"FARMPROXY_KUBE_API": "http://127.0.0.1:1"}}
ANSWER_S = 30


@dataclass(frozen=True)
class Overrides:
    """Full names and values. Asked for, an empty value means: the default again."""

    agent: Mapping[str, str] = field(default_factory=dict)
    proxy: Mapping[str, str] = field(default_factory=dict)

    def over(self, there: "Overrides") -> "Overrides":
        """What a farm with ``there`` has after this was asked for: what is not named stays."""
        return Overrides(_over(there.agent, self.agent), _over(there.proxy, self.proxy))

    def changes(self, there: "Overrides") -> list[str]:
        """What this has otherwise than ``there``, each as "NAME there -> here"."""
        before, after = {**there.agent, **there.proxy}, {**self.agent, **self.proxy}
        return [
            f"{name} {before.get(name, 'default')} -> {after.get(name, 'default')}"
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]

    def words(self) -> list[str]:
        return [f"{name}={value}" for name, value in sorted({**self.agent, **self.proxy}.items())]


def _over(there: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in {**there, **asked}.items() if value}


def asked(agent: Iterable[str], proxy: Iterable[str]) -> Overrides:
    """Of ``NAME=VALUE`` words. Raises UsageError for an unknown name, the testbed's own, or a value that cannot be."""
    return Overrides(_checked("agent", agent), _checked("proxy", proxy))


def _checked(part: str, words: Iterable[str]) -> dict[str, str]:
    found = dict(_split(part, words))
    if not found:
        return found
    prefix = f"FARM{part.upper()}_"
    known = [name for name in _known(part, prefix) if name.removeprefix(prefix) not in PLACED[part]]
    for name in found:
        if name.removeprefix(prefix) in PLACED[part] and name.startswith(prefix):
            raise UsageError(f"{name} is the testbed's to set", hint=f"one of: {', '.join(known)}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{name} is no setting of the {part}{meant}", hint=f"one of: {', '.join(known)}")
    others = {name: value for name, value in os.environ.items() if not name.startswith("FARM")}
    done = _run(part, "--check", {**others, **BESIDES[part], **found})
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise UsageError(f"the {part} does not take that: {said}", hint=f"python -m farm{part} --help")
    return found


def _split(part: str, words: Iterable[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{word!r} is no NAME=VALUE", hint=f"farmctl up --{part}-env NAME=VALUE")
        yield name.strip(), value.strip()


def _known(part: str, prefix: str) -> list[str]:
    said = _run(part, "--help", os.environ).stdout
    return re.findall(rf"^\s+({prefix}[A-Z0-9_]+)", said, flags=re.MULTILINE)


def _run(part: str, word: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"farm{part}", word],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
