"""Which addresses a page of this farm never reaches unless a setting allows them: one list for gate and NetworkPolicy.

The rule: what is not plainly a public unicast address is refused. The agent's gate judges each address it dials by
``is_public``; the egress rule in clusters/components/network-policy is ``egress_blocks``, and a test holds the two
together. Transcribed from the IANA special-purpose registries (RFC 6890, as of 2026) whole, their anycast and AS112
blocks for services other than web pages included; then multicast and the clouds' metadata services that lie outside.
"""

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# https://www.iana.org/assignments/iana-ipv4-special-registry, blocks inside a listed one left out
SPECIAL_V4: dict[str, str] = {
    "0.0.0.0/8": "this network (RFC 791)",
    "10.0.0.0/8": "private use (RFC 1918)",
    "100.64.0.0/10": "shared address space (RFC 6598); Alibaba Cloud's metadata is 100.100.100.200",
    "127.0.0.0/8": "loopback (RFC 1122)",
    "168.63.129.16/32": "Azure's platform services (WireServer), reachable from every machine there",
    "169.254.0.0/16": "link local (RFC 3927); most clouds' metadata is 169.254.169.254",
    "172.16.0.0/12": "private use (RFC 1918)",
    "192.0.0.0/24": "IETF protocol assignments (RFC 6890); Oracle Cloud's older metadata is 192.0.0.192",
    "192.0.2.0/24": "documentation (RFC 5737)",
    "192.31.196.0/24": "AS112 (RFC 7535)",
    "192.52.193.0/24": "AMT relays (RFC 7450)",
    "192.88.99.0/24": "6to4 relays, deprecated (RFC 7526)",
    "192.168.0.0/16": "private use (RFC 1918)",
    "192.175.48.0/24": "AS112 (RFC 7534)",
    "198.18.0.0/15": "benchmarking (RFC 2544)",
    "198.51.100.0/24": "documentation (RFC 5737)",
    "203.0.113.0/24": "documentation (RFC 5737)",
    "224.0.0.0/4": "multicast (RFC 5771)",
    "240.0.0.0/4": "reserved (RFC 1112) and broadcast",
}
# https://www.iana.org/assignments/iana-ipv6-special-registry: only 2000::/3 is handed out as global unicast, so
# loopback, unspecified, unique local (AWS fd00:ec2::254, Google fd20:ce::254, Scaleway fd00:42::42), link local,
# site local, multicast, 100::/64, 64:ff9b:1::/48 and 5f00::/16 are outside already.
GLOBAL_V6 = "2000::/3"
SPECIAL_V6: dict[str, str] = {
    "2001::/23": "IETF protocol assignments (RFC 2928): Teredo, benchmarking, ORCHID and more",
    "2001:db8::/32": "documentation (RFC 3849)",
    "2002::/16": "6to4, deprecated (RFC 7526): leads to an IPv4 address, private ones too",
    "2620:4f:8000::/48": "AS112 (RFC 7534)",
    "3fff::/20": "documentation (RFC 9637)",
}
NAT64 = ipaddress.IPv6Network(
    "64:ff9b::/96"
)  # RFC 6052: the last 32 bits are the IPv4 address that is reached

_SPECIAL: tuple[Network, ...] = tuple(map(ipaddress.ip_network, (*SPECIAL_V4, *SPECIAL_V6)))
_GLOBAL_V6 = ipaddress.IPv6Network(GLOBAL_V6)


def embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for (mapped, NAT64), since that is where packets go."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address


def is_public(address: Address) -> bool:
    """Whether pages may be at this address: global unicast, and on no list of special ones."""
    address = embedded(address)
    if address.version == 6 and address not in _GLOBAL_V6:
        return False
    return not any(address in network for network in _SPECIAL if network.version == address.version)


def egress_blocks() -> list[dict[str, object]]:
    """The same as the ``ipBlock`` list of a NetworkPolicy's egress rule."""
    return [
        {"cidr": "0.0.0.0/0", "except": list(SPECIAL_V4)},
        {"cidr": GLOBAL_V6, "except": list(SPECIAL_V6)},
        {"cidr": str(NAT64), "except": [_behind_nat64(ipaddress.IPv4Network(one)) for one in SPECIAL_V4]},
    ]


def _behind_nat64(network: ipaddress.IPv4Network) -> str:
    first = int(NAT64.network_address) | int(network.network_address)
    return str(ipaddress.IPv6Network((first, 96 + network.prefixlen)))
