"""Objects made by hand beside the farm's own: an endpoint where nothing listens, and pods that are never ready."""

import copy
import ipaddress
import math
from collections.abc import Iterable

from farmctl.testbeds.kind.api.objects import BROWSERS, SERVICE_LABEL, Json
from farmctl.testbeds.kind.api.pod_status import PORT
from farmctl.testbeds.kind.install.manifests import OURS

MANAGED_BY, BY_HAND = (
    "endpointslice.kubernetes.io/managed-by",
    "by-hand.farmctl.dev",
)  # a label value holds no slash
FAULT, UNREADY = "farmctl.dev/fault", "browsers-unready"
NEVER = "/never-ready"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def dead_addresses(nodes: Iterable[Json]) -> list[tuple[str, str]]:
    """(node, host:port) where no pod can ever listen: the first address of each node's pod range is the node's own.

    A connection is refused there at once, by the node itself, in every topology. (An address that no pod has yet may
    be given to one, and on the way to it the caller first waits for an answer to ARP.)
    """
    return [
        (node["metadata"]["name"], f"{ipaddress.ip_network(node['spec']['podCIDR'])[1]}:{PORT}")
        for node in sorted(nodes, key=lambda node: CONTROL_PLANE in node["metadata"].get("labels", {}))
        if node["spec"].get("podCIDR")
    ]


def stale_slice(address: str) -> Json:
    """A ready endpoint under the Service's label, which no controller touches: it is managed by somebody else."""
    host, _, port = address.rpartition(":")
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{BROWSERS}-stale-{host.replace('.', '-')}",
            "labels": {SERVICE_LABEL: BROWSERS, MANAGED_BY: BY_HAND},
        },
        "addressType": "IPv4",
        "ports": [{"name": "cdp", "port": int(port), "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [host], "conditions": {"ready": True, "serving": True, "terminating": False}}
        ],
    }


def is_by_hand(each: Json) -> bool:
    return (each["metadata"].get("labels") or {}).get(MANAGED_BY) == BY_HAND


def stale_in(slices: Iterable[Json]) -> list[Json]:
    return [each for each in slices if is_by_hand(each)]


def addresses_in(slices: Iterable[Json]) -> set[str]:
    return {f"{ip}:{PORT}" for each in slices for one in each["endpoints"] or () for ip in one["addresses"]}


def unready_deployment(browsers: Json, starting_s: float | None) -> Json:
    """A second Deployment under the same Service: the same pods, whose readiness is asked where the answer is no.

    With ``starting_s`` it is asked at the right place, but only after that time.
    """
    template = copy.deepcopy(browsers["spec"]["template"])
    labels = {**template["metadata"]["labels"], FAULT: UNREADY}
    template["metadata"]["labels"] = labels
    probe = template["spec"]["containers"][0]["readinessProbe"]
    if starting_s is None:
        probe["httpGet"]["path"] = NEVER
    else:
        probe["initialDelaySeconds"] = math.ceil(starting_s)
    own = {"app.kubernetes.io/name": labels["app.kubernetes.io/name"], FAULT: UNREADY}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": UNREADY, "labels": {**OURS, **own}},
        "spec": {"replicas": 0, "selector": {"matchLabels": own}, "template": template},
    }
