"""Takes a farm on Kubernetes down: its own cluster with all that is in it, or only what was installed in another's.

Also what a crash or a lost state folder left: a cluster of ours is known by the file its nodes mount.
"""

from dataclasses import dataclass

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import engines
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind.api import clusters
from farmctl.testbeds.kind.cluster import cluster, nodes
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.install import applying


@dataclass(frozen=True, slots=True)
class Ended:
    """``what`` is the farm that was removed, for a person; "" when there was none."""

    what: str = ""
    removed: tuple[str, ...] = ()


def take_down(folder: KindFolder, say: Say) -> Ended:
    """Remove everything of the farm that ``folder`` tells of; of nothing is fine. Raises StageError."""
    there = folder.read()
    if there is None:
        return Ended()
    ended = _cluster(there, there.shape, folder, say) if there.shape is not None else _install(there, say)
    folder.remove()
    return ended


def _cluster(there: Installed, shape: Shape, folder: KindFolder, say: Say) -> Ended:
    engine, catalogue = engines.find(there.engine), catalogues.read()
    found = nodes.listed(engine, shape.name)
    try:
        nodes.refuse_foreign(shape.name, found, folder.fence)
    except StageError as error:
        say(f"left alone: {error}")
        return Ended()
    if found:
        cluster.remove(clusters.opened(engine, catalogue, folder, shape, say))
    if there.made_network:
        nodes.drop_network(engine)
    if left := nodes.listed(engine, shape.name):
        raise StageError(
            f"{', '.join(each.name for each in left)} could not be removed", hint=f"{engine.name} rm -f NAME"
        )
    return Ended(f"farm/kind {shape.name}", tuple(each.name for each in found))


def _install(there: Installed, say: Say) -> Ended:
    from farmctl.testbeds.kind import existing

    kubectl = existing.opened(there.context, there.kubeconfig, catalogues.read(), say)
    removed = applying.uninstall(kubectl, there.namespace)
    return Ended(f"farm in {there.context}, namespace {there.namespace}", tuple(removed))
