"""labelSelector as the API takes it: equality, inequality and existence; what is not understood is an error."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from farmctl.testbeds.local.control_plane.store import Change, labels_of

Selector = Callable[[Mapping[str, str]], bool]
_TERM = re.compile(r"^(?P<not>!?)(?P<key>[\w./-]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[\w.-]*))?$")


def parse(text: str) -> Selector:
    """Raise ValueError for a term that is not key=value, key==value, key!=value, key or !key."""
    terms = [_term(part.strip()) for part in text.split(",") if part.strip()]
    return lambda labels: all(term(labels) for term in terms)


def _term(text: str) -> Selector:
    found = _TERM.match(text)
    if not found or (found["not"] and found["op"]):
        raise ValueError(f"unable to parse requirement: {text!r}")
    key, op, value = found["key"], found["op"], found["value"]
    if op is None:
        return (lambda labels: key not in labels) if found["not"] else (lambda labels: key in labels)
    if op == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def as_seen(change: Change, selector: Selector) -> Change | None:
    """The change as a watch with this selector sees it: leaving the selection is a DELETED, entering an ADDED."""
    if change.type != "MODIFIED":
        return change if selector(labels_of(change.slice)) else None
    before, after = selector(change.labels_before), selector(labels_of(change.slice))
    if before and after:
        return change
    if before or after:
        return replace(change, type="ADDED" if after else "DELETED")
    return None
