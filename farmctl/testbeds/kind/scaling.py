"""Sets how many browser pods a farm on Kubernetes has: recorded, so that the next ``up`` keeps it, and applied."""

import msgspec

from farmctl.errors import StageError
from farmctl.images import catalogue as catalogues
from farmctl.images import engines
from farmctl.images.gobuild import Say
from farmctl.testbeds.kind import applying, doors, gateways, programs, readying, starting
from farmctl.testbeds.kind.kubectl import Kubectl
from farmctl.testbeds.kind.manifests import render
from farmctl.testbeds.kind.state import Installed, KindFolder


def opened(there: Installed, folder: KindFolder, say: Say) -> tuple[Kubectl, doors.Reach]:
    """Kubectl and the way to the door of the farm that the record tells of."""
    program = programs.find("kubectl", catalogues.read(), say)
    if there.shape is None:
        kubectl = Kubectl(program, there.kubeconfig, there.context)
        return kubectl, doors.ClusterReach(kubectl, there.namespace)
    kubectl = Kubectl(program, str(folder.kubeconfig), starting.CONTEXT.format(name=there.shape.name))
    return kubectl, doors.HostReach(there.shape.door, there.shape.admin)


def scale(folder: KindFolder, pods: int, say: Say, *, timeout_s: float | None) -> None:
    """Scale, and wait until the farm serves unless ``timeout_s`` is None. Raises StageError."""
    there = folder.read()
    if there is None or not there.images:
        raise StageError("no farm is up", hint="farmctl up")
    kubectl, reach = opened(there, folder, say)
    there = folder.write(msgspec.structs.replace(there, pods=pods))
    # Without it the pods would lose their way to the scenarios' pages, which is a rollout of them all.
    harness = gateways.host_address(engines.find()) if there.shape is not None else ""
    manifests = render(kubectl.program, starting.rendering(there, folder, harness))
    applying.apply(kubectl, manifests, force=there.shape is not None)
    if timeout_s is not None:
        readying.wait_until_served(kubectl, there.namespace, reach, timeout_s=timeout_s, progress=say)
