"""Reads one number from a Prometheus text exposition: what the adapter's query does on a real cluster."""

import re
from collections.abc import Mapping

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def read(text: str, name: str, labels: Mapping[str, str]) -> float | None:
    """Sum of the series that have all these labels; None when there is none (an absent series is no zero)."""
    found = None
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or sample["name"] != name:
            continue
        has = dict(_LABEL.findall(sample["labels"] or ""))
        if labels.items() <= has.items():
            found = (found or 0.0) + float(sample["value"])
    return found
