"""What the API server keeps: EndpointSlices by name, one version counter, and a bounded history for watches.

A version older than the history is gone for ever (410): the reader has to list again. Versions only grow, also
while the server is away.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FIRST_VERSION = 1000  # versions are opaque; starting above 0 keeps "0" (any version will do) apart
Slice = dict[str, Any]


class TooOld(Exception):
    """The version asked for is no longer in the history."""


class Conflict(Exception):
    """The name exists already."""


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    type: str  # ADDED, MODIFIED, DELETED
    slice: Slice
    labels_before: Mapping[str, str]


class Store:
    def __init__(self, *, history: int = 1000, on_change: Callable[[], None] = lambda: None) -> None:
        self._slices: dict[str, Slice] = {}
        self._changes: deque[Change] = deque(maxlen=history)
        self._on_change = on_change
        self.version = FIRST_VERSION
        self._oldest = FIRST_VERSION  # every change after this version is still known

    def get(self, name: str) -> Slice | None:
        return self._slices.get(name)

    def all(self) -> list[Slice]:
        """By name, as etcd's keys are."""
        return [self._slices[name] for name in sorted(self._slices)]

    def create(self, obj: Slice) -> Slice:
        """Raise Conflict when the name is taken."""
        if obj["metadata"]["name"] in self._slices:
            raise Conflict(obj["metadata"]["name"])
        return self.put(obj)

    def put(self, obj: Slice) -> Slice:
        """Create or replace."""
        name = obj["metadata"]["name"]
        before = self._slices.get(name)
        return self._record("ADDED" if before is None else "MODIFIED", obj, before)

    def delete(self, name: str) -> Slice | None:
        before = self._slices.pop(name, None)
        return None if before is None else self._record("DELETED", before, before)

    def since(self, version: int) -> list[Change]:
        """Changes after ``version``, oldest first. Raise TooOld when some of them are forgotten."""
        if version < self._oldest:
            raise TooOld(f"too old resource version: {version} ({self._oldest})")
        return [change for change in self._changes if change.version > version]

    def forget(self) -> None:
        """Compact: only the present version can be resumed from."""
        self._changes.clear()
        self._oldest = self.version

    def _record(self, kind: str, obj: Slice, before: Slice | None) -> Slice:
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if kind != "DELETED":
            self._slices[obj["metadata"]["name"]] = obj
        if len(self._changes) == self._changes.maxlen:
            self._oldest = self._changes[0].version
        labels = labels_of(before) if before else {}
        self._changes.append(Change(self.version, kind, obj, labels))
        self._on_change()
        return obj


def labels_of(obj: Slice) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}
