#!/usr/bin/env python3
"""Mutation tests: small faults are put into the code one at a time, and the tests of that part must notice each.

`make mutants` draws from every part so many that all fit an hour on two cores; `ARGS="core --most 0"` runs all of one
part, `--seed N` draws others. Printed are the killed, and the survivors with their change; a part below 90 % fails.
"""

import argparse
import fnmatch
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LEAST = 0.9
MUTMUT = "mutmut==3.8.1"  # not in uv.lock: a terminal toolkit and a parser of its own, for one command
UNNOTICED = {
    0: "survived",
    5: "no test",
    33: "no test",
}  # exit codes that mutmut keeps; the others are deaths


class Part(NamedTuple):
    """``modules`` are mutated (below ``package``), ``tests`` must notice."""

    package: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


PROXY, AGENT = "proxy/farmproxy", "agent/farmagent"
PARTS = {
    "core": Part(
        PROXY,
        ("core/*.py", "kube/endpoint_slices.py", "kube/slice_sets.py"),
        ("tests/proxy/core", "tests/proxy/slices"),
    ),
    "driver": Part(
        PROXY,
        ("driver.py", "registry/*.py"),
        ("tests/proxy/driver", "tests/proxy/door/test_small_parts.py"),
    ),
    "tunnel": Part(
        PROXY,
        ("tunnel/*.py",),
        (
            "tests/proxy/tunnel",
            "tests/proxy/door/test_relay.py",
            "tests/proxy/door/test_stalls.py",
            "tests/proxy/door/test_leaving.py",
        ),
    ),
    "agent-client": Part(
        PROXY,
        (
            "upstream/agent_client.py",
            "upstream/readiness_polls.py",
            "upstream/response_heads.py",
            "upstream/handshakes.py",
        ),
        ("tests/proxy/agent_client", "tests/proxy/door/test_asks.py", "tests/proxy/door/test_handshakes.py"),
    ),
    "agent-states": Part(AGENT, ("lease/states.py",), ("tests/agent/pod/test_states.py",)),
}
# Lines in which a fault cannot matter to anybody but a reader of a message: (pattern of the line, why).
PARDONED_LINES = (
    (
        r"raise (IllegalEvent|IllegalTransition|Garbage)\(",
        "the text of an error; that it is raised is tested",
    ),
    (r"_must\(", "the tests' own net: what it says when it tears"),
    (r"lru_cache|_SAME_LIMIT", "which heads are parsed once: speed"),
    (r"recv\(\d+\)", "how much is read at once: what comes in pieces is tested in pieces"),
    (r"COMPACT_OVER", "when a heap is swept: speed and memory"),
)
# Mutants by mutmut's names, as shells match them.
PARDONED = (
    ("*.core.invariants.*", "the tests' own net, which product code never calls"),
    ("*.core.pods.*diagram*", "a picture in the docs, which a test compares"),
)
PYTEST = """\
[tool.pytest.ini_options]
addopts = "--import-mode=importlib -q -p no:cacheprovider"
asyncio_mode = "auto"
timeout = 120
markers = ["chrome", "engine", "node"]
[tool.mutmut]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--most", type=int, default=200, help="mutants a part, 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    low = []
    for name in args.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            part = Trial(PARTS[name], Path(folder))
            part.run(args.most, args.seed, args.jobs)
            if part.report(name) < LEAST:
                low.append(name)
    print(f"below {LEAST:.0%}: {', '.join(low)}" if low else f"every part is at {LEAST:.0%} or above")
    return 1 if low else 0


class Trial:
    """One part in a folder of its own, laid out as mutmut wants it: the package at the root, its tests beside."""

    def __init__(self, part: Part, folder: Path) -> None:
        self._folder = folder
        package = Path(part.package).name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part.package, folder / package, ignore=ignored)
        for tests in {Path(*Path(test).parts[:2]) for test in part.tests}:
            shutil.copytree(ROOT / tests, folder / tests, ignore=ignored)
        settings = {
            "source_paths": [package],
            "only_mutate": [f"{package}/{module}" for module in part.modules],
            "do_not_mutate_patterns": [pattern for pattern, _ in PARDONED_LINES],
            "pytest_add_cli_args_test_selection": list(part.tests),
            # mutmut's own import in each mutated module is one that the core may not have.
            "pytest_add_cli_args": ["-k", "not imports_nothing"],
        }
        told = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
        (folder / "pyproject.toml").write_text(PYTEST + told + "\n")

    def run(self, most: int, seed: int, jobs: int) -> None:
        # The first call, for a mutant that there is not, makes them all and finds which test runs which function.
        made = self._mutmut("run", "no.such.mutant", "--max-children", str(jobs))
        names = sorted(name for name in self._codes() if not pardoned(name))
        if not names or "nothing matches" not in made.stdout + made.stderr:
            sys.exit(f"mutmut: no mutants, or the tests fail without any\n{made.stdout}\n{made.stderr}")
        random.seed(seed)
        if most and len(names) > most:
            names = random.sample(names, most)
        self.drawn = names
        ran = self._mutmut("run", *names, "--max-children", str(jobs))
        if None in (self._codes()[name] for name in names):
            sys.exit(f"mutmut stopped before the end\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}")

    def report(self, name: str) -> float:
        """Print the part; the share of deaths."""
        codes = self._codes()
        alive = {mutant: codes[mutant] for mutant in self.drawn if codes[mutant] in UNNOTICED}
        share = 1 - len(alive) / len(self.drawn)
        print(f"{name}: {share:.1%} of {len(self.drawn)} mutants killed, {len(alive)} lived", flush=True)
        for mutant, code in sorted(alive.items()):
            shown = self._mutmut("show", mutant).stdout.splitlines()
            change = [line for line in shown if line[:1] in "+-" and line[:3] not in {"+++", "---"}]
            print(f"{UNNOTICED[code]}: {mutant}", *change, sep="\n    ", flush=True)
        return share

    def _codes(self) -> dict[str, int | None]:
        codes: dict[str, int | None] = {}
        for kept in (self._folder / "mutants").rglob("*.meta"):
            codes |= json.loads(kept.read_text())["exit_code_by_key"]
        return codes

    def _mutmut(self, *args: str) -> subprocess.CompletedProcess[str]:
        uv = shutil.which("uv") or str(Path.home() / ".cache/farmctl/uv/bin/uv")
        command = [uv, "run", "--project", str(ROOT), "--no-sync", "--with", MUTMUT, "mutmut", *args]
        env = {**os.environ, "NO_COLOR": "1"}
        return subprocess.run(command, cwd=self._folder, env=env, text=True, capture_output=True, check=False)


def pardoned(mutant: str) -> bool:
    return any(fnmatch.fnmatch(mutant, pattern) for pattern, _ in PARDONED)


if __name__ == "__main__":
    sys.exit(main())
