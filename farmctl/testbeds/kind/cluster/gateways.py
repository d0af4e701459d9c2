"""The host as the cluster's nodes see it: the address of the bridge between them, where scenarios serve their pages."""

import ipaddress
import json
from typing import Any

from farmctl.errors import StageError
from farmctl.images.engines import Engine
from farmctl.testbeds.kind.cluster.nodes import NETWORK


def host_address(engine: Engine) -> str:
    """Return the host's IPv4 address on the nodes' network. Raises StageError when there is none."""
    found = address(json.loads(engine.run("network", "inspect", NETWORK).stdout))
    if not found:
        raise StageError(
            f"the network {NETWORK!r} has no IPv4 gateway", hint=f"{engine.name} network inspect {NETWORK}"
        )
    return found


def address(inspected: Any) -> str:
    """Read what `network inspect` prints, podman's form or docker's; "" when no IPv4 gateway is in it."""
    for network in inspected:
        subnets = network.get("subnets") or (network.get("IPAM") or {}).get("Config") or ()
        for subnet in subnets:
            gateway = subnet.get("gateway") or subnet.get("Gateway") or ""
            if gateway and ipaddress.ip_address(gateway).version == 4:
                return str(gateway)
    return ""
