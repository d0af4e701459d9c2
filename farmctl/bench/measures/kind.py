"""What a farm on Kubernetes takes: `up`, a lost pod's replacement, and how much sooner the agent's word is than a slice's.

Measured on the farm that is up here, which has to be idle, in interleaved rounds. `up` is the command itself, run from
a copy of our packages, in the first rounds only; for "changed" a comment is added to the agent's code there, so that
a new image is built, loaded and rolled out, and the clock stops when the proxy has every new pod free. "Clean" is the
agent's own log line "free", after its recycle. Of that same moment two witnesses tell: the proxy's /status, asked
every few milliseconds, when it has the pod free by the agent's word; and a watch of our own, through the same API
server as the proxy's, when the slice says ready. A session is the line "lease-began" of a caller that was held: after
the dial, and after Chrome has answered. Sizes are the engine's (uncompressed). Cold build times are what the builds
wrote down when they ran, a step's longest: nothing is built for this.
"""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from farmctl.bench.kind import builds, farms, readiness_lag, up_times
from farmctl.bench.kind.farms import Farm
from farmctl.bench.results import Section, Verdict
from farmctl.bench.stage import Stage, about

UP_ROUNDS = 3  # of the rounds, at most: they take minutes
CHANGED_S = 120.0
SOONER = 20.0
WHOLE, SLICE, RATIO = "farm", "by slice", "ratio"


@dataclass(slots=True)
class Samples:
    """A list a figure, a value a round; ``ups`` by part."""

    warm_s: list[float] = field(default_factory=list)
    ups: list[up_times.Changed] = field(default_factory=list)
    replaced_s: list[float] = field(default_factory=list)
    word_ms: list[float] = field(default_factory=list)
    slice_ms: list[float] = field(default_factory=list)
    session_ms: list[float] = field(default_factory=list)
    recycle_s: list[float] = field(default_factory=list)


def measure(stage: Stage) -> Section:
    """Raises StageError when no idle farm on a kind cluster is up here. The farm is put back as it was found."""
    return asyncio.run(_measure(stage))


async def _measure(stage: Stage) -> Section:
    farm, samples = await Farm.connect(), Samples()
    with up_times.Copy() as copy:
        try:
            for number in range(stage.rounds):
                stage.say(f"kind: round {number + 1} of {stage.rounds}")
                if number < UP_ROUNDS:
                    samples.ups.append(await up_times.changed(copy, farm.testbed.admin, farm.pods))
                    samples.warm_s.append((await asyncio.to_thread(copy.up)).seconds)
                await _round(farm, samples)
        finally:
            stage.say("kind: putting the farm back")
            await asyncio.to_thread(copy.put_back)
            await farm.idle()
    return section(stage.rounds, samples, farm.pods)


async def _round(farm: Farm, samples: Samples) -> None:
    samples.replaced_s.append(await farms.replaced(farm))
    told = await readiness_lag.told(farm)
    samples.word_ms.append(statistics.median(told.word_ms))
    samples.slice_ms.append(statistics.median(told.slice_ms))
    heard = await readiness_lag.held(farm)
    samples.session_ms.append(statistics.median(heard.session_ms))
    samples.recycle_s.append(statistics.median(heard.recycle_s))


def section(rounds: int, samples: Samples, pods: int) -> Section:
    """All figures, sizes and records as the page has them."""
    made = Section("kind", "A farm on Kubernetes", about(__doc__), rounds, builds.conditions(pods))
    ups = samples.ups
    ratio = [theirs / ours for ours, theirs in zip(samples.word_ms, samples.slice_ms, strict=True)]
    seconds: Mapping[str, Sequence[float]] = {
        "up, nothing changed": samples.warm_s,
        f"up, the agent's code changed, to {pods} free pods": [one.seconds for one in ups],
        "of it: the image built": [one.built_s for one in ups],
        "of it: loaded into the nodes": [one.loaded_s for one in ups],
        "of it: applied, rolled out, asked at the door": [one.rolled_s for one in ups],
        "a pod deleted to its replacement free": samples.replaced_s,
    }
    for figure, values in seconds.items():
        made.row(figure, "s", {WHOLE: values})
    words = {WHOLE: samples.word_ms, SLICE: samples.slice_ms}
    made.row("a clean pod is free for the proxy: by the agent's word, by its slice", "ms", words)
    made.row("the agent's word is sooner", "x", {RATIO: ratio})
    made.row("a clean pod to a held caller's session", "ms", {WHOLE: samples.session_ms})
    made.row("recycle before that (in both alike)", "s", {WHOLE: samples.recycle_s})
    made.verdicts = [
        Verdict(
            "up, the agent's code changed", "s", CHANGED_S, statistics.median(one.seconds for one in ups)
        ),
        Verdict(
            "clean to free for the proxy, times sooner than the slice",
            "x",
            SOONER,
            statistics.median(ratio),
            at_least=True,
        ),
    ]
    builds.add_sizes(made, WHOLE)
    builds.add_records(made, WHOLE)
    return made
