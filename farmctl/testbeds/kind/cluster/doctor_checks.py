"""What `farmctl up --testbed kind` would refuse on this machine, asked without making anything: for `farmctl doctor`."""

import shutil
from collections.abc import Iterator

from farmctl.errors import StageError
from farmctl.images import base, catalogue, engines, sources
from farmctl.images.catalogue import Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import kept_at
from farmctl.machine import Finding
from farmctl.testbeds.kind.cluster import preflight, programs
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.state import KindFolder

NAME = "kind cluster"


def findings() -> list[Finding]:
    """The programs, then one finding a lack, or a single one that all is there. A cluster that is up has shown it."""
    said = list(tools(catalogue.read()))
    if KindFolder().record.exists():
        return [*said, Finding(NAME, "ok", "a farm is up", ("kind",))]
    found = [Finding(NAME, "missing", what, ("kind",), mend) for what, mend in lacks()]
    return said + (found or [Finding(NAME, "ok", "can be made here", ("kind",))])


def tools(known: Catalogue) -> Iterator[Finding]:
    """Each program that `up` starts, its version, and where it comes from when what is on PATH does not serve."""
    kind = known.providing("kind")
    there = on_path("kind")
    if programs.fits("kind", kind.version, there):
        yield Finding("kind", "ok", there, ("kind",))
    elif kept_at(kind, "kind").exists() or shutil.which("go"):
        yield Finding(
            "kind", "ok", f"{there or 'none'} on PATH: {kind.version} is built from its module", ("kind",)
        )
    else:
        error = programs.missing("kind", kind, shutil.which("kind"))
        yield Finding("kind", "missing", str(error), ("kind",), error.hint)
    version, wanted = on_path("kubectl"), known.versions["kubernetes"]
    fits = programs.fits("kubectl", wanted, version)
    own = "" if fits else f"; Kubernetes {wanted} is asked by the nodes' own"
    yield Finding("kubectl", "ok", f"{version or 'none on PATH'}{own}", ("kind",))


def on_path(name: str) -> str:
    """The version of the program that PATH leads to, "" when there is none or it does not say."""
    found = shutil.which(name)
    return programs.version_of(found) if found else ""


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
