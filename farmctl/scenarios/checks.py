"""Ways to compare what was expected with what was seen. Each returns a Check; none raises."""

from collections.abc import Iterable, Sequence

from farmctl.scenarios.results import Check

EVIDENCE_LINES = 20  # more than this helps nobody in a report


def equal(name: str, expected: object, got: object, evidence: Iterable[str] = ()) -> Check:
    return Check(name, _plain(expected), _plain(got), expected == got, _some(evidence))


def at_least(name: str, least: float, got: float, evidence: Iterable[str] = ()) -> Check:
    return Check(name, f"at least {least:g}", f"{got:g}", got >= least, _some(evidence))


def at_most(name: str, most: float, got: float, evidence: Iterable[str] = ()) -> Check:
    return Check(name, f"at most {most:g}", f"{got:g}", got <= most, _some(evidence))


def none(name: str, found: Sequence[object]) -> Check:
    """Pass when nothing of the kind was found; what was found is the evidence."""
    return Check(name, "0", str(len(found)), not found, _some(str(item) for item in found))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _some(lines: Iterable[str]) -> Sequence[str]:
    shown = list(lines)
    if len(shown) > EVIDENCE_LINES:
        shown[EVIDENCE_LINES:] = [f"and {len(shown) - EVIDENCE_LINES} more"]
    return tuple(shown)
