"""Whatever an EndpointSlice holds, by Kubernetes or by hand: it is read, or it is passed over."""

import ipaddress
import json

import pytest
from farmproxy.kube.messages import UNREADABLE, decode_slice
from farmproxy.kube.slice_sets import SliceBook
from hypothesis import given
from hypothesis import strategies as st

ADDRESSES = [
    "10.0.0.1", "fd00::9", "::ffff:10.0.0.1", "127.0.0.2",
    "", "pod.example", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "10.0.0.256", "10.1", " 10.0.0.1",
    "10.0.0.1\r\nX: y", "1" * 100_000, "\u0661.0.0.1",
]  # fmt: skip
PORTS = [9222, 1, 65535, 0, -1, 65536, 10**30, 9222.0, 1.5, "9222", True]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def maybe(*values):
    return st.one_of(*values, ODD)


def objects(**fields):
    return st.fixed_dictionaries({}, optional=fields)


TEXTS = maybe(st.sampled_from(["s1", "cdp", "uid", "x" * 100_000, "a:b", "\ud83d", "\x00"]))
ENDPOINTS = objects(
    addresses=maybe(st.lists(maybe(st.sampled_from(ADDRESSES)), max_size=2)),
    conditions=maybe(objects(ready=maybe(st.booleans()), terminating=maybe(st.booleans()))),
    targetRef=maybe(objects(name=TEXTS, uid=TEXTS)),
)
SLICES = maybe(
    objects(
        metadata=maybe(objects(name=TEXTS, resourceVersion=TEXTS)),
        addressType=maybe(st.sampled_from(["IPv4", "IPv6", "FQDN"])),
        endpoints=maybe(st.lists(maybe(ENDPOINTS), max_size=3)),
        ports=maybe(st.lists(maybe(objects(name=TEXTS, port=maybe(st.sampled_from(PORTS)), protocol=TEXTS)), max_size=2)),
    )
)  # fmt: skip


@given(st.lists(SLICES, max_size=4))
def test_what_comes_out_of_any_slices_can_be_dialled(given_slices):
    book = SliceBook("default", "cdp")
    for value in given_slices:
        try:
            seen = decode_slice(json.dumps(value))
        except UNREADABLE:
            continue
        for pod in book.changed(seen).seen:
            assert not ipaddress.ip_address(pod.address).is_unspecified
            assert 0 < pod.port < 65536
            assert len(pod.key) <= 300
            assert len(pod.name) <= 300


@pytest.mark.parametrize("address", ADDRESSES)
def test_only_an_ip_of_one_machine_is_an_address(address):
    raw = {
        "metadata": {"name": "s1"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "cdp", "port": 9222}],
    }
    change = SliceBook("default", "cdp").changed(decode_slice(json.dumps(raw)))
    assert bool(change.seen) is (address in ADDRESSES[:4])
