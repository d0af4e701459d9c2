"""The pod network of a source-built cluster: a bridge on each node, and routes between them.

Everything here can be done again at any time: that is how a restarted node, which has lost its routes, is repaired.
What keeps the cluster's own ranges on the machine is the fence (data/clusters/kind/kubelet-fence.conf).
"""

import json
from collections.abc import Mapping, Sequence

from farmctl.images.engines import Engine
from farmctl.testbeds.kind.cluster.nodes import Node, sh

UPLINK = "eth0"
CONF = "/etc/cni/net.d/10-farm.conflist"


def conflist(pod_cidr: str) -> str:
    """The CNI configuration of one node: bridge, host-local addresses, host ports."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pod_cidr}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "farm", "plugins": [bridge, portmap]})


def script(node: Node, nodes: Sequence[Node], pod_cidrs: Mapping[str, str]) -> str:
    """What ``node`` has to run: its CNI file, and a route to the pods of each node that runs (by node name)."""
    routes = [
        f"ip route replace {pod_cidrs[other.name]} via {other.address} dev {UPLINK}"
        for other in nodes
        if other.name != node.name and other.running
    ]
    lines = [
        f"mkdir -p {CONF.rpartition('/')[0]}",
        f"cat > {CONF} <<'CONF'",
        conflist(pod_cidrs[node.name]),
        "CONF",
    ]
    return "\n".join([*lines, *routes])


def wire(engine: Engine, nodes: Sequence[Node], pod_cidrs: Mapping[str, str]) -> None:
    """Connect the pods of every running node; harmless when they are."""
    for node in nodes:
        if node.running:
            sh(engine, node.name, script(node, nodes, pod_cidrs))
