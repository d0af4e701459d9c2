"""The cluster of a farm as an object: found by the record, whether its nodes are there or not."""

from farmctl.images.catalogue import Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind.api import doors
from farmctl.testbeds.kind.cluster import programs
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.state import KindFolder


def opened(engine: Engine, catalogue: Catalogue, folder: KindFolder, shape: Shape, say: Say) -> Cluster:
    """The cluster as an object, whether its nodes are there or not."""
    kind, kubectl = programs.find("kind", catalogue, say), doors.own_kubectl(lambda: engine, shape, folder)
    return Cluster(engine, kind, kubectl, folder, shape)
