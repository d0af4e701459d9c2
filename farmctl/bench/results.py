"""What a run of the benchmarks leaves behind: one versioned JSON that the table and the page are made from.

A figure stands once, as a row with one spread a subject; a verdict names its target, its value and, when it
was missed, where the time goes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from farmctl.bench.figures import Spread
from farmctl.errors import UsageError

SCHEMA = 1


@dataclass(slots=True)
class Row:
    """One figure of several subjects (farm, haproxy, ratio ...)."""

    figure: str
    unit: str
    spreads: dict[str, Spread]


@dataclass(slots=True)
class Verdict:
    """One target. ``value`` is compared by ``at_most`` (or, with ``at_least``, the other way round)."""

    target: str
    unit: str
    limit: float
    value: float
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(slots=True)
class Profile:
    """Where a program's time goes: shares of its own time, most first."""

    subject: str
    how: str
    lines: list[tuple[str, float]]  # what, share 0..1


@dataclass(slots=True)
class Section:
    """One benchmark's outcome. ``conditions`` are the sizes and rates it ran with."""

    name: str
    title: str
    about: str  # how it is measured, for the reader of the page
    rounds: int
    conditions: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row(self, figure: str, unit: str, samples: Mapping[str, Sequence[float]]) -> None:
        """Add a figure from the rounds' samples of each subject."""
        self.rows.append(Row(figure, unit, {name: Spread.of(values) for name, values in samples.items()}))


@dataclass(slots=True)
class Run:
    """All sections of one run, with the machine it ran on."""

    machine: dict[str, Any]
    versions: dict[str, str]
    started: str  # ISO 8601, UTC
    quick: bool
    sections: list[Section] = field(default_factory=list)
    unstaged: dict[str, str] = field(default_factory=dict)  # benchmark: why it was not measured

    def as_json(self) -> str:
        words = {"schema": SCHEMA, **asdict(self)}
        for section, wrote in zip(self.sections, words["sections"], strict=True):
            for verdict, line in zip(section.verdicts, wrote["verdicts"], strict=True):
                line["met"] = verdict.met
        return json.dumps(words, indent=1) + "\n"


def load(path: Path) -> Run:
    """Read a run's JSON; raises UsageError for another file or schema."""
    try:
        words = json.loads(path.read_text())
        if words["schema"] != SCHEMA:
            raise UsageError(f"{path} has schema {words['schema']}, this farmctl reads {SCHEMA}")
        return Run(
            machine=words["machine"],
            versions=words["versions"],
            started=words["started"],
            quick=words["quick"],
            sections=[_section(section) for section in words["sections"]],
            unstaged=words["unstaged"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is no result of `farmctl bench`: {error}", hint="farmctl bench --out FILE.json"
        ) from error


def _section(words: dict[str, Any]) -> Section:
    rows = [
        Row(row["figure"], row["unit"], {name: Spread(**spread) for name, spread in row["spreads"].items()})
        for row in words["rows"]
    ]
    verdicts = [Verdict(**{k: v for k, v in line.items() if k != "met"}) for line in words["verdicts"]]
    profiles = [
        Profile(line["subject"], line["how"], [(what, share) for what, share in line["lines"]])
        for line in words["profiles"]
    ]
    return Section(**{**words, "rows": rows, "verdicts": verdicts, "profiles": profiles})
