"""``farmctl images build|list|load|prune``: the kind testbed's images, in the engine and on the nodes."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from farmctl.images.engines import Engine
    from farmctl.images.gobuild import Say
    from farmctl.images.listing import Row
    from farmctl.images.sources import Source as Asked
    from farmctl.testbeds.kind.cluster.nodes import Node


class Action(StrEnum):
    build = "build"
    list = "list"
    load = "load"
    prune = "prune"


class Output(StrEnum):
    table = "table"
    json = "json"
    name = "name"


class Source(StrEnum):
    auto = "auto"
    registry = "registry"
    build = "build"


def images(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.list,
    source: Annotated[Source, typer.Option(help="build: where node and base image come from.")] = Source.auto,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="list: table, json or name.")
    ] = Output.table,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Build what is missing, list what there is, load it into the cluster's nodes, prune what nothing needs."""
    from farmctl.images import engines
    from farmctl.reports.steps import Steps
    from farmctl.testbeds.kind.cluster.state import KindFolder

    engine = engines.find(KindFolder().engine())
    if action is Action.list:
        _list(engine, output)
        return
    with Steps(quiet=quiet) as say:
        if action is Action.build:
            _build(engine, source.value, say)
        elif action is Action.load:
            _load(engine, say)
        else:
            _prune(engine, say)


def _nodes(engine: "Engine") -> "list[Node]":
    """The nodes of the farm's own cluster, those that run."""
    from farmctl.testbeds.kind.cluster import nodes
    from farmctl.testbeds.kind.cluster.state import KindFolder

    there = KindFolder().read()
    if there is None or there.shape is None:
        return []
    return [each for each in nodes.listed(engine, there.shape.name) if each.running]


def _list(engine: "Engine", output: Output) -> None:
    from farmctl.images import catalogue, listing

    rows = listing.rows(engine, catalogue.read(), [node.name for node in _nodes(engine)])
    if output is Output.json:
        import json

        print(json.dumps([row.as_dict() for row in rows]))
    elif output is Output.name:
        print("\n".join(row.image for row in rows))
    else:
        _table(rows)


def _table(rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("NAME", "IMAGE", "SIZE", "NODES", box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            row.name,
            row.image,
            f"{row.bytes / 1e6:.0f} MB" if row.bytes else "not here",
            ", ".join(row.nodes) or "-",
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 250  # a pipe has no width: nothing is cut off
    console.print(table)


def _build(engine: "Engine", asked: "Asked", say: "Say") -> None:
    from farmctl.images import catalogue as catalogues
    from farmctl.images import farm, sources

    catalogue = catalogues.read()
    source = sources.choose(engine, catalogue, asked)
    taken = sources.ensure_node(engine, catalogue, sources.node_image(catalogue, source), say)
    for image in farm.PARTS:
        print(farm.ensure(engine, image, say, pull=source == "registry"))
    print(sources.node_image(catalogue, source))
    for step, seconds in taken.items():
        say(f"{step}: {seconds} s")


def _load(engine: "Engine", say: "Say") -> None:
    from farmctl.errors import StageError
    from farmctl.images import farm, loading
    from farmctl.testbeds.kind import up

    there = _nodes(engine)
    if not there:
        raise StageError("no cluster of farmctl's runs here", hint="farmctl up --testbed kind")
    tags = {image: farm.ensure(engine, image, say, pull=False) for image in farm.PARTS}
    for moved in loading.ensure(engine, up.placed(there, tags), say):
        print(f"{moved.node}  {moved.image}  {moved.bytes / loading.MIB:.1f} MiB")


def _prune(engine: "Engine", say: "Say") -> None:
    import shutil

    from farmctl.images import catalogue, gobuild, listing, loading
    from farmctl.testbeds.kind.cluster.state import KindFolder

    for folder in listing.stale_programs(catalogue.read()):
        say(f"removing {folder}")
        shutil.rmtree(folder)
        print(folder)
    gobuild.drop_go_caches()
    there = KindFolder().read()
    in_use = [*there.images.values(), *([there.shape.node_image] if there.shape else [])] if there else []
    for tag in listing.stale(engine, catalogue.read(), in_use):
        say(f"removing {tag}")
        engine.run("rmi", "-f", tag)
        print(tag)
    for node in _nodes(engine):
        for tag in listing.stale_on(engine, node.name, in_use):
            say(f"removing {tag} from {node.name}")
            loading.drop(engine, node.name, tag)
            print(f"{node.name}  {tag}")
