"""Which targets are refused: tables of URLs as Chrome reads them, and of addresses."""

import contextlib
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml
from farmagent.render.targets import BadTarget, RefusedTarget, TargetPolicy, literal, split_url
from farmwire.addresses import egress_blocks, is_public
from hypothesis import example, given
from hypothesis import strategies as st

REFUSING = TargetPolicy()
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.255.255.254",
        "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1",
        "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
        "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1",
        "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1",
        "ff02::1", "ff0e::1",
        # what the standard library's lists leave out: metadata services, relays, newer blocks
        "168.63.129.16", "192.0.0.192", "192.0.0.170", "100.100.100.200", "192.88.99.1", "fd20:ce::254",
        "fd00:42::42", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "64:ff9b::c000:c0", "2002:808:808::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2", "3fff::1", "5f00::1", "100:0:0:1::1", "4000::1",
    ],
)  # fmt: skip
def test_no_special_address_is_reached(address):
    assert not REFUSING.allows(ip_address(address))
    assert TargetPolicy(everything=True).allows(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.167.255.255", "2606:4700::1111",
     "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
     "168.63.129.15", "168.63.129.17", "192.0.1.1", "2001:4860:4860::8888"],
)  # fmt: skip
def test_public_addresses_are_reached(address):
    assert REFUSING.allows(ip_address(address))


@given(st.ip_addresses())
def test_what_is_private_by_the_standard_library_is_never_public(address):
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert not is_public(address)


def egress_rule() -> list[dict]:
    (path,) = (one for one in ROOT.rglob("network-policy/policies.yaml") if ".venv" not in one.parts)
    (browsers,) = (
        one for one in yaml.safe_load_all(path.read_text()) if one["metadata"]["name"] == "browsers"
    )
    return [to["ipBlock"] for rule in browsers["spec"]["egress"] if "ports" not in rule for to in rule["to"]]


def test_the_network_policy_is_written_from_the_gate_s_own_list():
    """If this fails, write what ``farmwire.addresses.egress_blocks()`` says into the NetworkPolicy."""
    assert egress_rule() == egress_blocks()


@given(st.ip_addresses())
@example(ip_address("168.63.129.16"))
@example(ip_address("64:ff9b::a83f:8110"))
@example(ip_address("64:ff9b::808:808"))
@example(ip_address("2002:a00:1::1"))
@example(ip_address("::ffff:10.0.0.1"))
def test_what_the_gate_lets_through_the_network_policy_does_and_no_more(address):
    mapped = getattr(address, "ipv4_mapped", None)
    packet_to = mapped or address  # a mapped address is dialled by IPv4
    let_through = any(
        packet_to.version == ip_network(block["cidr"]).version
        and packet_to in ip_network(block["cidr"])
        and not any(packet_to in ip_network(one) for one in block["except"])
        for block in egress_blocks()
    )
    assert REFUSING.allows(address) == let_through


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"), ("127.1", "127.0.0.1"), ("127.0.1", "127.0.0.1"), ("0", "0.0.0.0"),
        ("2130706433", "127.0.0.1"), ("0x7f000001", "127.0.0.1"), ("0x7F.1", "127.0.0.1"), ("017700000001",
        "127.0.0.1"), ("0177.0.0.1", "127.0.0.1"), ("127.0.0.1.", "127.0.0.1"), ("0x", "0.0.0.0"),
        ("%31%32%37.0.0.1", "127.0.0.1"), ("\uff11\uff12\uff17.0.0.1", "127.0.0.1"), ("127\u30020\u30020\u30021", "127.0.0.1"),
        ("192.168.257", "192.168.1.1"), ("::1", "::1"), ("::ffff:7f00:1", "::ffff:7f00:1"), ("fe80::1%25eth0", "fe80::1"),
        ("0300.0250.0.1", "192.168.0.1"), ("8.8.8.8", "8.8.8.8"),
    ],
)  # fmt: skip
def test_an_address_is_read_as_chrome_reads_it(host, address):
    assert literal(host) == [ip_address(address)]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.", "a.localhost", "A.B.LocalHost."])
def test_localhost_is_loopback(host):
    assert REFUSING.permitted(literal(host)) == []
    assert literal(host)


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1.example", "1e100.net", "a.b.c.d", "localhost.example"]
)
def test_a_name_says_nothing_of_itself(host):
    assert literal(host) == []


@pytest.mark.parametrize(
    "host", ["256.256.256.256", "1.2.3.4.5", "0x100000000", "1..2", "08.1.1.1", "a.1", ":::1"]
)
def test_what_ends_in_a_number_and_is_no_address(host):
    with pytest.raises(BadTarget):
        literal(host)


@given(st.ip_addresses(v=4))
def test_every_spelling_of_an_address_is_that_address(address):
    number = int(address)
    for text in (str(address), str(number), hex(number), f"0{number:o}"):
        assert literal(text) == [address]


@given(st.text())
def test_any_text_is_an_address_a_name_or_bad(text):
    with contextlib.suppress(BadTarget):
        literal(text)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://[::1]:80/", "http://[::ffff:10.0.0.1]/", "http://0/", "http://localhost:3000/",
     "http://user:pw@10.0.0.1/", "http://1.1.1.1@10.0.0.1/", "https://169.254.169.254/latest/meta-data/",
     "HTTP://0X7F.1/", "file:///etc/passwd", "chrome://settings", "javascript:alert(1)", "data:text/html,x",
     "ftp://example.com/", "ws://example.com/", "view-source:http://example.com/", "about:blank", "blob:x"],
)  # fmt: skip
def test_refused_urls(url):
    with pytest.raises(RefusedTarget):
        REFUSING.check_url(url)


@pytest.mark.parametrize(
    "url",
    ["", "example.com", "/page", "//example.com/", "http://", "http:///x", "http://exa mple.com/", "http://a/\n",
     "http://a:99999/", "http://a:b/", "http://[::1/", "\thttp://a/", "http://256.1.1.1/"],
)  # fmt: skip
def test_what_is_no_url(url):
    with pytest.raises(BadTarget):
        REFUSING.check_url(url)


@pytest.mark.parametrize("url", ["http://example.com", "https://example.com:8443/a?b#c", "HTTP://EXAMPLE.com/",
                                 "http://bücher.example/", "http://8.8.8.8/", "http://[2606:4700::1111]/"])  # fmt: skip
def test_allowed_urls(url):
    assert REFUSING.check_url(url).hostname


@pytest.mark.parametrize(
    ("setting", "allowed", "refused"),
    [
        ("refuse", ["8.8.8.8"], ["10.0.0.1"]),
        ("", ["8.8.8.8"], ["10.0.0.1"]),
        ("allow", ["8.8.8.8", "10.0.0.1", "::1"], []),
        ("10.0.0.0/8, fd00::/8", ["10.1.2.3", "fd00::1", "8.8.8.8", "::ffff:10.0.0.1"], ["192.168.0.1", "fc00::1"]),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.4"]),
        ("10.1.2.3/8", ["10.200.0.1"], ["11.0.0.1"][:0]),
    ],
)  # fmt: skip
def test_the_setting(setting, allowed, refused):
    policy = TargetPolicy.parse(setting)
    addresses = [ip_address(one) for one in allowed + refused]
    assert policy.permitted(addresses) == addresses[: len(allowed)]


@pytest.mark.parametrize("setting", ["maybe", "10.0.0.0/33", "allow,10.0.0.0/8", "refuse, x"])
def test_a_setting_that_is_none(setting):
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 network"):
        TargetPolicy.parse(setting)


def test_the_policy_never_opens_another_scheme():
    with pytest.raises(RefusedTarget):
        TargetPolicy(everything=True).check_url("file:///etc/passwd")
    assert TargetPolicy(everything=True).check_url("http://127.0.0.1/").port is None


def test_split_url_keeps_the_port():
    assert split_url("http://a:8080/").port == 8080
