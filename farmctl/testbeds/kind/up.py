"""Brings a farm up on a kind cluster of its own, or repairs the one that is there; a second time changes nothing.

In order, each step only where it is needed: what is missing on the machine, the images, the nodes, the images on the
nodes, the manifests, the pods, the door.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import engines, farm, loading, sources
from farmctl.images.catalogue import Catalogue
from farmctl.images.engines import Engine
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind import leftovers
from farmctl.testbeds.kind.api import doors
from farmctl.testbeds.kind.api.clusters import opened
from farmctl.testbeds.kind.cluster import cluster, cluster_spec, gateways, nodes, preflight
from farmctl.testbeds.kind.cluster.cluster import Cluster
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.install import applying, rollout_wait
from farmctl.testbeds.kind.install.manifests import SECCOMP, SECCOMP_PROFILE, Rendering, render
from farmctl.testbeds.overrides import Overrides

DOOR_S = 60
CAP_SYS_RESOURCE = 24  # linux/capability.h


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `farmctl up` was asked for; None keeps what is there, or takes the default."""

    pods: int | None = None
    door: tuple[str, int] | None = None
    workers: int | None = None
    name: str | None = None
    source: sources.Source = "auto"
    kubernetes: str = ""  # a minor version of the catalogue, "1.35"
    timeout_s: float = 300.0
    overrides: Overrides = field(default_factory=Overrides)


def bring_up(wanted: Wanted, folder: KindFolder, say: Say) -> Installed:
    """Return the record of the farm that is up. Raises StageError with cause and remedy."""
    there = folder.read()
    if there is not None and there.shape is None:
        raise StageError(
            f"a farm is installed in the cluster {there.context}", hint="farmctl down first, or up --context"
        )
    engine, catalogue = engines.find(there.engine if there is not None else ""), catalogues.read()
    source = sources.choose(engine, catalogue, wanted.source, wanted.kubernetes)
    shape = shape_for(wanted, there, catalogue, engine, source)
    made = nodes.listed(engine, shape.name)
    nodes.refuse_foreign(shape.name, made, folder.fence)
    if there is not None and there.phase != "creating" and made and there.shape is not None:
        cluster_spec.refuse_differences(there.shape, shape)
    else:
        building = source == "build" and not engine.has_image(shape.node_image)
        if not made:
            preflight.check(engine, shape, building=building)
        kept = there.overrides if there is not None else Overrides()
        there = Installed(
            phase="creating",
            shape=shape,
            agent_env=dict(kept.agent),
            proxy_env=dict(kept.proxy),
            made_network=there is not None and there.made_network,
        )
    there = msgspec.structs.replace(
        there, engine=engine.key, pods=there.pods if wanted.pods is None else wanted.pods
    ).with_overrides(wanted.overrides, say)
    sources.ensure_node(engine, catalogue, shape.node_image, say)
    running = opened(engine, catalogue, folder, shape, say)
    images = ensure_images(engine, source, say)
    leftovers.mend_nodes(running, say)
    return install(running, cluster.ensure(running, there, say), images, say, timeout_s=wanted.timeout_s)


def shape_for(
    wanted: Wanted, there: Installed | None, catalogue: Catalogue, engine: Engine, source: str
) -> Shape:
    """The cluster's shape: what was not asked for stays as it is."""
    old = there.shape if there is not None else None
    image = sources.node_image(catalogue, "build" if source == "build" else "registry", wanted.kubernetes)
    as_it_is = wanted.source == "auto" and not wanted.kubernetes
    if old is not None and as_it_is and sources.known(catalogue, old.node_image):
        image = old.node_image
    default = Shape(node_image=image)
    host, port = wanted.door or (
        (old.door_host, old.door_port) if old else (default.door_host, default.door_port)
    )
    return Shape(
        node_image=image,
        name=wanted.name or (old.name if old else default.name),
        workers=(old.workers if old else default.workers) if wanted.workers is None else wanted.workers,
        door_host=host,
        door_port=port,
        admin_port=port + 1,
        own_network=sources.built(catalogue, image),
        restricted=not engine.elsewhere and not may(CAP_SYS_RESOURCE),
    )


def may(capability: int) -> bool:
    """Whether what this process starts may have the capability; True where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text().splitlines()
        bound = next(line.split()[1] for line in status if line.startswith("CapBnd:"))
    except (OSError, StopIteration):
        return True
    return bool(int(bound, 16) >> capability & 1)


def ensure_images(engine: Engine, source: str, say: Say) -> dict[str, str]:
    """Make the farm's own images exist in the engine; their names. Raises StageError."""
    pull = source == "registry"
    return {image: farm.ensure(engine, image, say, pull=pull) for image in farm.PARTS}


def install(
    running: Cluster, there: Installed, images: dict[str, str], say: Say, *, timeout_s: float
) -> Installed:
    """Load, apply, prune, wait, ask the door. A failure exports the nodes' logs."""
    folder, kubectl, shape = running.folder, running.kubectl, running.shape
    there = folder.write(msgspec.structs.replace(there, images=images))
    try:
        loading.ensure(running.engine, placed(running.nodes(), images), say)
        nodes.put_file(running.engine, running.nodes(), f"{nodes.SECCOMP_FOLDER}/{SECCOMP_PROFILE}", SECCOMP)
        manifests = render(kubectl.program, rendering(there, folder, gateways.host_address(running.engine)))
        say("applying the manifests")
        applying.apply(kubectl, manifests, force=True)
        leftovers.undo(running, there, say)
        applying.prune(kubectl, there.namespace, manifests)
        reach = doors.HostReach(shape.door, shape.admin)
        say("waiting for the pods")
        seen = rollout_wait.wait_until_served(
            kubectl, there.namespace, reach, timeout_s=timeout_s, progress=say
        )
        answer = rollout_wait.wait_for_lease(reach, timeout_s=DOOR_S)
    except StageError as error:
        cluster.export_logs(running, say)
        raise StageError(str(error), hint=error.hint or f"see {folder.logs}") from error
    say(f"{seen}; the door answers: {answer}")
    return folder.write(msgspec.structs.replace(there, phase="up"))


def placed(there: Sequence[nodes.Node], images: Mapping[str, str]) -> dict[str, list[str]]:
    """Image -> the nodes that its pods may be put on: each gigabyte that no pod can use would cost half a minute."""
    workers = [each.name for each in there if each.role == "worker"]
    stable = [each.name for each in there if each.role != "worker"]
    return {images["browser"]: workers or stable, images["proxy"]: stable}


def rendering(there: Installed, folder: KindFolder, harness: str = "") -> Rendering:
    """The manifests that belong to this record. ``harness``: this machine's address, where scenarios serve pages."""
    shape = there.shape
    return Rendering(
        overlay="existing" if shape is None else "kind",
        images=there.images,
        pods=there.pods,
        namespace=there.namespace,
        key=folder.ensure_key().read_text(),
        one_node=shape is not None and shape.workers == 0,
        own_namespace=there.own_namespace,
        harness=harness,
        agent_env=there.agent_env,
        proxy_env=there.proxy_env,
        tokens=folder.tokens.read_text() if folder.tokens.exists() else "",
        pull_secret=there.pull_secret,
        seccomp_profile=there.seccomp_profile if shape is None else SECCOMP_PROFILE,
        restricted=there.restricted,
        architectures=there.architectures,
    )
