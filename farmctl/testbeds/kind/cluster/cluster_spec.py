"""The shape of a kind cluster: what cannot be changed without a new one, and kind's configuration of it."""

from pathlib import Path

import msgspec

from farmctl.errors import StageError
from farmctl.images.catalogue import ROOT

TEMPLATE = ROOT / "clusters" / "kind" / "cluster.yaml.j2"
FENCE = ROOT / "clusters" / "kind" / "kubelet-fence.conf"
# Where the fence is mounted in a node; it also tells our clusters from others of the same name.
FENCE_IN_NODE = "/etc/systemd/system/kubelet.service.d/05-farm-fence.conf"
CONTEXT_PREFIX = "kind-"  # kind's own, in the contexts that it writes
POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``own_network``: source-built nodes bring no CNI. ``restricted``: no CAP_SYS_RESOURCE on this machine."""

    node_image: str
    name: str = "farm"
    workers: int = 2
    door_host: str = "127.0.0.1"
    door_port: int = 9222
    admin_port: int = 9223
    own_network: bool = False
    restricted: bool = False

    @property
    def context(self) -> str:
        return f"{CONTEXT_PREFIX}{self.name}"

    @property
    def door(self) -> str:
        return f"{self.door_host}:{self.door_port}"

    @property
    def admin(self) -> str:
        return f"{self.door_host}:{self.admin_port}"


SAID = {"workers": "workers", "door": "door", "node_image": "node image", "restricted": "machine's rights"}


def differences(there: Shape, wanted: Shape) -> list[str]:
    """What of ``wanted`` the cluster that is there does not have, each as "what there -> wanted"."""
    return [
        f"{said} {getattr(there, name)} -> {getattr(wanted, name)}"
        for name, said in SAID.items()
        if getattr(there, name) != getattr(wanted, name)
    ]


def refuse_differences(there: Shape, wanted: Shape) -> None:
    """Raises StageError when the cluster that is there would have to be another one."""
    if changed := differences(there, wanted):
        raise StageError(
            f"recreate needed: a kind cluster cannot change its {'; '.join(changed)}",
            hint="farmctl down, then the same farmctl up",
        )


def render(shape: Shape, fence: Path) -> str:
    """Return kind's configuration for this shape; ``fence`` is the file each node mounts."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701 - YAML
    values = {**msgspec.structs.asdict(shape), "pod_range": POD_RANGE, "service_range": SERVICE_RANGE}
    return environment.from_string(TEMPLATE.read_text()).render(
        values, fence=fence, fence_in_node=FENCE_IN_NODE
    )


def render_fence() -> str:
    return FENCE.read_text().replace("POD_RANGE", POD_RANGE).replace("SERVICE_RANGE", SERVICE_RANGE)
