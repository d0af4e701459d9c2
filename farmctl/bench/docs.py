"""docs/performance.md and its like, written from a run's JSON and from nothing else: `farmctl bench --docs FILE.json`."""

from collections.abc import Iterator
from pathlib import Path

from farmctl.bench.results import Profile, Row, Run, Section, Verdict, load
from farmctl.bench.suite import ON_A_CLUSTER
from farmctl.bench.tables import number, spread, subjects

PAGE = "performance.md"
ANEW = "`make bench` measures anew and rewrites both"
RIVALS = (
    "Both proxies run on one core, in the same run, in interleaved rounds; everything that loads them runs on the "
    "others. Only ratios inside a run are claims: absolute figures belong to the machine."
)
CLUSTER = "Only ratios inside a run, and what is told as a target, are claims: absolute figures belong to the machine."
QUICK = "> **This was a quick run.** Its figures show that the benchmarks work and claim nothing.\n"


def write(source: Path) -> Path:
    """Write the page beside its JSON; return its path. Raises UsageError for a file that is no result."""
    page = source.with_suffix(".md")
    page.write_text(text(load(source), source.name))
    return page


def text(run: Run, source: str) -> str:
    """Return the whole page."""
    return "\n".join(_lines(run, source)) + "\n"


def _lines(run: Run, source: str) -> Iterator[str]:
    cluster = all(section.name in ON_A_CLUSTER for section in run.sections) and bool(run.sections)
    names = " ".join(section.name for section in run.sections)
    yield "# Performance on Kubernetes\n" if cluster else "# Performance\n"
    anew = f"`farmctl bench {names} --out docs/{source}` measures anew" if cluster else ANEW
    yield (
        f"Written by `farmctl bench --docs docs/{source}` from [{source}]({source}); do not edit it by hand. {anew}.\n"
    )
    yield f"{CLUSTER if cluster else RIVALS} A figure is the median, in brackets the least and the most of its rounds.\n"
    if run.quick:
        yield QUICK
    yield from _machine(run, cluster=cluster)
    yield from _overview(run)
    for name, why in run.unstaged.items():
        yield f"Not measured: {name}: {why}.\n"
    for section in run.sections:
        yield from _section(section)


def _machine(run: Run, *, cluster: bool) -> Iterator[str]:
    """Of a cluster only what is true of it: its programs run in images of their own, on all cores."""
    told = {key.replace("_", " "): value for key, value in run.machine.items()}
    machine = ", ".join(
        f"{key} {v}" for key, v in told.items() if not (cluster and key.startswith("cores of "))
    )
    named = {name: v for name, v in run.versions.items() if not cluster or name.startswith("farm")}
    yield f"Measured {run.started} on: {machine}.\n"
    yield f"With: {', '.join(f'{name} {version}' for name, version in named.items())}.\n"


def _overview(run: Run) -> Iterator[str]:
    yield "## Targets\n"
    yield "| benchmark | target | asked | measured | |\n| --- | --- | --- | --- | --- |"
    for section in run.sections:
        for verdict in section.verdicts:
            yield f"| [{section.name}](#{section.name}) {_verdict(verdict)}"
    yield ""


def _verdict(verdict: Verdict) -> str:
    asked = f"{'at least' if verdict.at_least else 'at most'} {number(verdict.limit)} {verdict.unit}".strip()
    value = f"{number(verdict.value)} {verdict.unit}".strip()
    word = "met" if verdict.met else "**MISSED**"
    note = f" ({verdict.note})" if verdict.note else ""
    return f"| {verdict.target} | {asked} | {value} | {word}{note} |"


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.name}\n"
    yield f"{section.title}. {section.about}\n"
    conditions = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in section.conditions.items())
    yield f"Conditions: {conditions}; rounds {section.rounds}.\n"
    names = subjects(section)
    yield "| figure | unit | " + " | ".join(names) + " |"
    yield "| --- | --- |" + " ---: |" * len(names)
    for row in section.rows:
        yield _row(row, names)
    yield ""
    for note in section.notes:
        yield f"{note}\n"
    for profile in section.profiles:
        yield from _profile(profile)


def _row(row: Row, names: list[str]) -> str:
    cells = " | ".join(spread(row.spreads[name]) if name in row.spreads else "" for name in names)
    return f"| {row.figure} | {row.unit} | {cells} |"


def _profile(profile: Profile) -> Iterator[str]:
    yield f"Where the time of the {profile.subject} goes ({profile.how}):\n"
    yield "| what | share |\n| --- | ---: |"
    for what, share in profile.lines:
        yield f"| `{what}` | {share:.1%} |"
    yield ""
