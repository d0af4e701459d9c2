"""The benchmarks by name, and the run of some of them."""

import importlib
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from farmctl.bench import network
from farmctl.bench import stage as stages
from farmctl.bench.results import Run
from farmctl.bench.stage import Stage
from farmctl.errors import StageError, UsageError

# In the order of the page. Each is farmctl/bench/NAME.py with ``measure(stage) -> Section``.
NAMES = ("lease", "relay", "grant", "fleet", "slices", "job")
# Only when named: it needs a farm on a kind cluster that is up and idle, and rolls it out.
ON_A_CLUSTER = ("kind",)
ROUNDS, QUICK_ROUNDS = 5, 2


def chosen(names: Sequence[str]) -> Sequence[str]:
    """Return the benchmarks asked for; when none is, all that need no cluster; raises UsageError for an unknown one."""
    for name in names:
        if name not in NAMES + ON_A_CLUSTER:
            known = ", ".join(NAMES + ON_A_CLUSTER)
            raise UsageError(f"no benchmark is called {name!r}", hint=f"one of: {known}")
    return [name for name in NAMES + ON_A_CLUSTER if name in names] or NAMES


def run(names: Sequence[str], *, rounds: int, quick: bool, say: Callable[[str], None]) -> Run:
    """Run the benchmarks one after another. One that cannot be staged is noted, and the others still run; raises
    StageError where there is no Linux.
    """
    if sys.platform != "linux":
        raise StageError("the benchmarks need Linux: epoll, splice, /proc and 127.x.y.z addresses")
    stages.raise_descriptors()
    # Where it is not permitted the run goes on, and says so.
    own = not set(names) & set(ON_A_CLUSTER) and network.isolate()
    result = Run(
        {**stages.machine(), "own_network": own},
        stages.versions(),
        datetime.now(UTC).isoformat(timespec="seconds"),
        quick,
    )
    stage = Stage(rounds or (QUICK_ROUNDS if quick else ROUNDS), quick, say)
    for name in names:
        try:
            result.sections.append(importlib.import_module(f"farmctl.bench.measures.{name}").measure(stage))
        except StageError as error:
            result.unstaged[name] = f"{error}" + (f" (try: {error.hint})" if error.hint else "")
    return result
