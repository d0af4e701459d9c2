"""The few fields of a discovery.k8s.io/v1 EndpointSlice that matter here, and what one slice says of each pod.

Everything may be null or missing (the API's own text calls most of it optional); unknown fields are passed over.
An endpoint that cannot be dialled (no address or none that is an IP, no port of the pool's name) is no pod.
"""

import ipaddress
from functools import lru_cache

from msgspec import Struct

from farmproxy.core.events import PodKey


class Metadata(Struct, frozen=True, gc=False):
    name: str | None = None
    resourceVersion: str | None = None  # noqa: N815  # the API's spelling


class TargetRef(Struct, frozen=True, gc=False):
    name: str | None = None
    uid: str | None = None


class Conditions(Struct, frozen=True, gc=False):
    ready: bool | None = None
    terminating: bool | None = None


class Endpoint(Struct, frozen=True, gc=False):
    addresses: tuple[str | None, ...] | None = None
    conditions: Conditions | None = None
    targetRef: TargetRef | None = None  # noqa: N815


class EndpointPort(Struct, frozen=True, gc=False):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Struct, frozen=True, gc=False):
    metadata: Metadata | None = None
    addressType: str | None = None  # noqa: N815
    endpoints: tuple[Endpoint | None, ...] | None = None
    ports: tuple[EndpointPort | None, ...] | None = None

    @property
    def name(self) -> str:
        """Empty when the object has none, as a bookmark's."""
        return (self.metadata and self.metadata.name) or ""


class Sight(Struct, frozen=True, gc=False):
    """One pod as one slice (or the union of all) says."""

    name: str
    address: str
    port: int
    ready: bool
    terminating: bool


NO_CONDITIONS = Conditions()
LONGEST_NAME = 253  # of a pod, and of its UID: Kubernetes' names have no more
DIALLABLE_TYPES = frozenset({"IPv4", "IPv6", None})


def sights_of(seen: EndpointSlice, port_name: str) -> dict[PodKey, Sight]:
    """Each pod of the slice by key. Listed twice with different words, it is not free."""
    port = port_of(seen, port_name)
    sights: dict[PodKey, Sight] = {}
    if port is None or not seen.endpoints or seen.addressType not in DIALLABLE_TYPES:
        return sights
    for endpoint in seen.endpoints:
        # The API: all addresses of one endpoint are fungible, clients may take the first.
        if endpoint is None or not endpoint.addresses or not (address := endpoint.addresses[0]):
            continue
        if not can_be_dialled(endpoint):
            continue
        said = endpoint.conditions or NO_CONDITIONS
        ref = endpoint.targetRef
        key = (ref and ref.uid) or host_port(address, port)
        # nil ready is to be read as ready, nil terminating as not terminating (the API's own words)
        sight = Sight(
            (ref and ref.name) or key, address, port, said.ready is not False, said.terminating is True
        )
        twin = sights.get(key)
        sights[key] = sight if twin is None else disagree(twin, sight)
    return sights


def can_be_dialled(endpoint: Endpoint) -> bool:
    """Whether its address is one machine's, and its names are such as Kubernetes gives."""
    ref = endpoint.targetRef
    if ref is not None and max(len(ref.name or ""), len(ref.uid or "")) > LONGEST_NAME:
        return False
    return is_machine((endpoint.addresses or ("",))[0] or "")


@lru_cache(maxsize=16384)
def is_machine(address: str) -> bool:
    """Whether it is an IP address that a connection can be made to: no name, no zone, not everybody's."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (ip.is_multicast or ip.is_unspecified or "%" in address)


def port_of(seen: EndpointSlice, port_name: str) -> int | None:
    """The number of the slice's TCP port of this name; null, unset and 0 are none."""
    for port in seen.ports or ():
        if port is not None and port.name == port_name and port.protocol in {"TCP", None}:
            return port.port if port.port and 0 < port.port < 65536 else None
    return None


def disagree(kept: Sight, other: Sight) -> Sight:
    """Two words of equal age: ready only if both say so, terminating if one does. ``kept`` gives the address."""
    ready, terminating = kept.ready and other.ready, kept.terminating or other.terminating
    return Sight(kept.name, kept.address, kept.port, ready, terminating)


def host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
