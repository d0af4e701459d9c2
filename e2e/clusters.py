"""The kind cluster of the farm that is up, as farmctl itself opens it."""

import sys

from farmctl.images import catalogue, engines
from farmctl.testbeds.kind.api import clusters
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.state import KindFolder


def opened() -> Cluster | None:
    """None where no farm on a kind cluster is up. Raises StageError."""
    folder = KindFolder()
    there = folder.read()
    if there is None or there.shape is None:
        return None
    return clusters.opened(engines.find(there.engine), catalogue.read(), folder, there.shape, say)


def say(step: str) -> None:
    print(step, file=sys.stderr)
