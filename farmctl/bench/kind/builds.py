"""What the farm's images weigh, and what building them took: read from the engine and from the builds' own records."""

import os
from typing import Any

from farmctl.bench.results import Section
from farmctl.images import engines, records
from farmctl.images.gobuild import cache_folder
from farmctl.testbeds.kind.cluster.state import KindFolder

MB = 1e6


def conditions(pods: int) -> dict[str, Any]:
    engine, there = engines.find(KindFolder().engine()), KindFolder().read()
    made: dict[str, Any] = {
        "pods": pods,
        engine.name: engine.version,
        "load_after": round(os.getloadavg()[0], 1),
    }
    if there is not None and there.shape is not None:
        made |= {"nodes": there.shape.workers + 1, "node_image": there.shape.node_image}
    return made


def add_sizes(made: Section, subject: str) -> None:
    """One row an image that this farm runs."""
    engine, there = engines.find(KindFolder().engine()), KindFolder().read()
    if there is None:
        return
    tags = dict(there.images) | ({"node": there.shape.node_image} if there.shape is not None else {})
    for image, tag in sorted(tags.items()):
        made.row(f"image: {image}", "MB", {subject: [engine.image_bytes(tag) / MB]})


def add_records(made: Section, subject: str) -> None:
    """One row a step that was recorded on this machine."""
    found = records.coldest(records.read(cache_folder()))
    for step, built in found.items():
        made.row(f"cold build, {step}", "s", {subject: [built.seconds]})
    if not found:
        made.notes.append(
            "No cold build is recorded here: what this farm runs was built before builds kept records, or from layers that "
            "were there."
        )
        return
    loads = [built.load for built in found.values()]
    days = sorted(built.at[:10] for built in found.values())
    made.notes.append(
        f"Cold build times were written down by the builds themselves, {days[0]} to {days[-1]}, at load averages of "
        f"{min(loads):g} to {max(loads):g}; steps that are not here were built before builds kept records, or pulled."
    )
