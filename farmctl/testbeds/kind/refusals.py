"""What `farmctl up --testbed kind` would refuse on this machine, asked without making anything: for `farmctl doctor`."""

import shutil
from collections.abc import Iterator

from farmctl.errors import StageError
from farmctl.images import base, catalogue, engines, sources
from farmctl.images.engines import Engine
from farmctl.machine import Finding
from farmctl.testbeds.kind import preflight
from farmctl.testbeds.kind.shapes import Shape
from farmctl.testbeds.kind.state import KindFolder

NAME = "kind cluster"


def findings() -> list[Finding]:
    """One finding a lack, or a single one that all is there. A cluster that is up has shown it."""
    if KindFolder().record.exists():
        return [Finding(NAME, "ok", "a farm is up", ("kind",))]
    found = [Finding(NAME, "missing", what, ("kind",), mend) for what, mend in lacks()]
    return found or [Finding(NAME, "ok", "can be made here", ("kind",))]


def lacks() -> Iterator[tuple[str, str]]:
    """What is missing, and the command that mends it; without an engine nothing further can be asked."""
    try:
        engine = engines.find()
        known = catalogue.read()
    except StageError as error:
        yield str(error), error.hint
        return
    source = sources.choose(engine, known, "auto")
    shape = Shape(node_image=sources.node_image(known, source))
    building = source == "build" and not engine.has_image(shape.node_image)
    yield from preflight.lacks(preflight.read(engine, shape), shape, building=building)
    if building:
        yield from to_build(engine)


def to_build(engine: Engine) -> Iterator[tuple[str, str]]:
    if not shutil.which("go"):
        yield "no Go toolchain, and no registry to pull images from", "install Go 1.24 or later"
    if not engine.has_image(base.NAME):
        try:
            base.check_tools()
        except StageError as error:
            yield str(error), error.hint
