"""The pod network of a source-built cluster: a bridge on each node, routes between them, and a fence.

Until kube-proxy has programmed a Service, a connection to its address leaves the node as it is, and something
outside may even answer it. The fence rejects what would leave for the cluster's own ranges; programmed Services
never meet it, because they are translated earlier. Everything here can be done again at any time: that is how a
restarted node is repaired.
"""

import json

from farmctl.images.engines import Engine
from farmctl.testbeds.kind.nodes import Node, sh

POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
UPLINK = "eth0"
CONF = "/etc/cni/net.d/10-farm.conflist"


def conflist(pod_cidr: str) -> str:
    """The CNI configuration of one node: bridge, host-local addresses, host ports."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": pod_cidr}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": ipam,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "farm", "plugins": [bridge, portmap]})


def fence(engine: Engine, nodes: list[Node]) -> None:
    """Put the fence up on every node; harmless when it stands."""
    reject = "-j REJECT --reject-with tcp-reset"
    rules = [
        f"OUTPUT -p tcp -d {SERVICE_RANGE} {reject}",
        f"FORWARD -p tcp -d {SERVICE_RANGE} {reject}",
    ]
    script = "\n".join(f"iptables -C {rule} 2>/dev/null || iptables -A {rule}" for rule in rules)
    for node in nodes:
        sh(engine, node.name, script)


def wire(engine: Engine, nodes: list[Node], pod_cidrs: dict[str, str]) -> None:
    """Give every running node its CNI file, and routes to the pods of the others (``pod_cidrs`` by node name)."""
    for node in nodes:
        routes = "\n".join(
            f"ip route replace {pod_cidrs[other.name]} via {other.address} dev {UPLINK}"
            for other in nodes
            if other.name != node.name and other.running
        )
        # A pod range without a route of its own (a node that is away) must not follow the default route out.
        script = f"""
mkdir -p /etc/cni/net.d
cat > {CONF} <<'CONF'
{conflist(pod_cidrs[node.name])}
CONF
ip route replace unreachable {POD_RANGE}
{routes}
"""
        sh(engine, node.name, script)
