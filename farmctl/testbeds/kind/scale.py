"""Sets how many browser pods a farm on Kubernetes has: recorded, so that the next ``up`` keeps it, and applied."""

import msgspec

from farmctl.errors import StageError
from farmctl.images import engines
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind import up
from farmctl.testbeds.kind.api import doors
from farmctl.testbeds.kind.cluster import gateways
from farmctl.testbeds.kind.cluster.state import KindFolder
from farmctl.testbeds.kind.install import applying, rollout_wait
from farmctl.testbeds.kind.install.manifests import render


def scale(folder: KindFolder, pods: int, say: Say, *, timeout_s: float | None) -> None:
    """Scale, and wait until the farm serves unless ``timeout_s`` is None. Raises StageError."""
    there = folder.read()
    if there is None or not there.images:
        raise StageError("no farm is up", hint="farmctl up")
    kubectl, reach = doors.opened(there, folder, say)
    there = folder.write(msgspec.structs.replace(there, pods=pods))
    # Without it the pods would lose their way to the scenarios' pages, which is a rollout of them all.
    harness = gateways.host_address(engines.find(there.engine)) if there.shape is not None else ""
    manifests = render(kubectl.program, up.rendering(there, folder, harness))
    applying.apply(kubectl, manifests, force=there.shape is not None)
    if timeout_s is not None:
        rollout_wait.wait_until_served(kubectl, there.namespace, reach, timeout_s=timeout_s, progress=say)
