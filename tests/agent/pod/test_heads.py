"""Request heads in any pieces and of any bytes: a request, a refusal or nothing, never another error."""

import asyncio
from itertools import pairwise

from farmagent.http.heads import BadRequest, HttpServerSide, Request
from farmagent.lease import lease_requests
from hypothesis import example, given, settings
from hypothesis import strategies as st

LEASE = (
    b"GET /lease HTTP/1.1\r\nHost: 10.0.0.1:9222\r\nConnection: keep-alive, Upgrade\r\nUpgrade: farm-lease\r\n"
    b"Farm-Lease: 01J\r\nFarm-Lease-Max-S: 900\r\nFarm-Waited-Ms: 3\r\nFarm-Dials: 2\r\n"
    b"Farm-Public-Base: wss://door/leases/01J.KEY/\r\n\r\n"
)


class Scripted:
    """A connection that gives these pieces and then ends."""

    def __init__(self, pieces):
        self._pieces = [piece for piece in pieces if piece]

    async def receive(self):
        return self._pieces.pop(0) if self._pieces else b""


def read(pieces):
    async def reading():
        http = HttpServerSide(Scripted(pieces))
        request = await http.next_request(idle_s=None, head_s=5)
        return request, (http.glued() if request is not None and request.header("upgrade") else b"")

    return asyncio.run(reading())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, len(LEASE)), max_size=6))
def test_pieces_make_no_difference(cuts):
    edges = [0, *sorted(cuts), len(LEASE)]
    request, _ = read([LEASE[start:end] for start, end in pairwise(edges)])
    asked = lease_requests.read(request)
    assert (asked.lease, asked.is_join, asked.lease_max_s, asked.waited_ms, asked.dials) == (
        "01J",
        False,
        900.0,
        "3",
        "2",
    )
    assert asked.public_base == "wss://door/leases/01J.KEY"


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_glued_to_the_head_are_kept(more):
    assert read([LEASE + more])[1] == more


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=5))
@example([b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"])
@example([b"GET / HTTP/9.9\r\nHost: a\r\n\r\n"])
@example([b"GET  HTTP/1.1\r\n\r\n"])
@example([b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n"])
@example([LEASE[:-2]])
def test_any_bytes(pieces):
    check(pieces)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_good_head_with_a_few_bytes_changed(data):
    changed = bytearray(LEASE)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    check([bytes(changed)])


def check(pieces):
    status = 400
    try:
        request, _ = read(pieces)
        if request is not None:
            assert isinstance(request, Request)
            assert isinstance(request.query, dict)
            assert isinstance(request.path, str)
            lease_requests.read(request)
    except BadRequest as refusal:
        status = refusal.status
    assert 400 <= status < 600
