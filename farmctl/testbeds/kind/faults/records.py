"""What was broken on purpose, written down before it is done: a later ``restore``, ``up`` or ``down`` undoes it even
when the command that did it is gone.

What lies in nodes and in the API carries marks of its own and is found without this record; here stands what could not
be known otherwise: the Deployments' own settings before they were changed.
"""

from pathlib import Path

import msgspec

from farmctl.testbeds.kind.api.objects import Json

FILE = "faults.json"
# The parts of a container that verbs change, and restore puts back.
PARTS = ("env", "readinessProbe")


class Faults(msgspec.Struct, forbid_unknown_fields=True):
    """``before``: Deployment -> the parts of its container as they were. ``told``: what was done, for a person."""

    before: dict[str, Json] = {}
    told: list[str] = []


class FaultsFile:
    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read(self) -> Faults:
        """A record that cannot be read is none: what it told is lost, the marks are not."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Faults)
        except (FileNotFoundError, msgspec.DecodeError):
            return Faults()

    def tell(self, what: str) -> None:
        faults = self.read()
        faults.told.append(what)
        self._write(faults)

    def remember(self, deployment: Json) -> None:
        """Keep the Deployment's settings, unless an older fault's are kept already."""
        name = deployment["metadata"]["name"]
        faults = self.read()
        if name not in faults.before:
            container = container_of(deployment)
            faults.before[name] = {part: container.get(part) for part in PARTS}
            self._write(faults)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def _write(self, faults: Faults) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(faults)))
        partial.replace(self._path)


def container_of(deployment: Json) -> Json:
    """The one container of each of the farm's Deployments."""
    container: Json = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def undone(deployment: Json, before: Json) -> list[Json]:
    """The JSON patch that puts the kept parts back; empty when they are as they were."""
    container = container_of(deployment)
    path = "/spec/template/spec/containers/0"
    return [
        {"op": "add", "path": f"{path}/{part}", "value": value}
        if value is not None
        else {"op": "remove", "path": f"{path}/{part}"}
        for part, value in before.items()
        if container.get(part) != value
    ]
