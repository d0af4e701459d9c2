"""Sets how many browser pods a farm on Kubernetes has: recorded, so that the next ``up`` keeps it, and applied."""

import msgspec

from farmctl.errors import StageError
from farmctl.images import engines
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind import applying, doors, gateways, readying, starting
from farmctl.testbeds.kind.manifests import render
from farmctl.testbeds.kind.state import KindFolder


def scale(folder: KindFolder, pods: int, say: Say, *, timeout_s: float | None) -> None:
    """Scale, and wait until the farm serves unless ``timeout_s`` is None. Raises StageError."""
    there = folder.read()
    if there is None or not there.images:
        raise StageError("no farm is up", hint="farmctl up")
    kubectl, reach = doors.opened(there, folder, say)
    there = folder.write(msgspec.structs.replace(there, pods=pods))
    # Without it the pods would lose their way to the scenarios' pages, which is a rollout of them all.
    harness = gateways.host_address(engines.find(there.engine)) if there.shape is not None else ""
    manifests = render(kubectl.program, starting.rendering(there, folder, harness))
    applying.apply(kubectl, manifests, force=there.shape is not None)
    if timeout_s is not None:
        readying.wait_until_served(kubectl, there.namespace, reach, timeout_s=timeout_s, progress=say)
