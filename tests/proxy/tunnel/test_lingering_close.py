"""Last words are written whole, then FIN, then what the peer still sends is taken: within bounds, by a clock that is moved."""

import contextlib
import socket

import pytest
from farmproxy.net.poller import BROKEN, READ, WRITE
from farmproxy.tunnel import lingering_close
from farmproxy.tunnel.lingering_close import LINGER_S, LONGEST_S, LingeringClose


class Poller:
    """Remembers who waits for what; the test is the kernel."""

    def __init__(self):
        self.handlers, self.masks, self.closed = {}, {}, []

    def hand_over(self, sock, handler):
        self.handlers[sock] = handler

    def change(self, sock, mask):
        self.masks[sock] = mask

    def close(self, sock):
        self.closed.append(sock)
        sock.close()


class Leaving:
    def __init__(self, clock):
        self.clock = clock
        self.poller = Poller()
        self.every = LingeringClose(self.poller, clock)
        self.far = []

    def say(self, data=b"bye"):
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        self.far.append(far)
        self.every.say(near, data)
        return near, far

    def ready(self, sock, mask):
        self.poller.handlers[sock](mask)

    def pass_s(self, seconds):
        self.clock.now += seconds
        self.every.sweep()


@pytest.fixture
def leaving(clock):
    leaving = Leaving(clock)
    yield leaving
    for sock in [*leaving.far, *leaving.poller.handlers]:
        sock.close()


def test_last_words_are_followed_by_fin_and_what_comes_then_is_taken(leaving):
    near, far = leaving.say()
    assert far.recv(10) == b"bye"
    assert far.recv(10) == b""
    assert leaving.poller.masks[near] == READ
    far.send(b"still sending")
    leaving.ready(near, READ)
    with pytest.raises(BlockingIOError):
        near.recv(1)
    leaving.ready(near, READ)  # nothing there is no end
    assert (leaving.poller.closed, len(leaving.every)) == ([], 1)
    far.close()
    leaving.ready(near, READ)
    assert (leaving.poller.closed, len(leaving.every)) == ([near], 0)


def test_no_words_are_fin_at_once(leaving):
    near, far = leaving.say(b"")
    assert far.recv(10) == b""
    assert leaving.poller.masks[near] == READ


def test_words_that_are_not_taken_at_once_are_written_whole(leaving):
    words = b"w" * 2_000_000
    near, far = leaving.say(words)
    got = bytearray()
    assert leaving.poller.masks[near] == WRITE
    while leaving.poller.masks[near] == WRITE or len(got) < len(words):
        with contextlib.suppress(BlockingIOError):
            while data := far.recv(1 << 20):
                got += data
        if leaving.poller.masks[near] == WRITE:
            leaving.ready(near, WRITE)
    assert bytes(got) == words
    assert leaving.poller.masks[near] == READ
    assert far.recv(1) == b""


def test_a_silent_peer_is_left_after_two_seconds(leaving):
    near, far = leaving.say()
    leaving.pass_s(LINGER_S - 0.1)
    far.send(b"x")
    leaving.ready(near, READ)
    leaving.pass_s(LINGER_S - 0.1)
    assert leaving.poller.closed == []
    leaving.pass_s(0.2)
    assert (leaving.poller.closed, len(leaving.every)) == ([near], 0)
    leaving.pass_s(LONGEST_S)
    assert leaving.poller.closed == [near]


def test_a_peer_that_never_stops_is_left_after_thirty_seconds(leaving):
    near, far = leaving.say()
    for _ in range(30):
        assert leaving.poller.closed == []
        far.send(b"x")
        leaving.ready(near, READ)
        leaving.pass_s(1.0)
    assert leaving.poller.closed == [near]


def test_no_more_than_a_bound_of_bytes_is_taken(leaving, monkeypatch):
    monkeypatch.setattr(lingering_close, "_DISCARD_LIMIT", 100)
    near, far = leaving.say()
    for size in (50, 50):
        far.send(b"x" * size)
        leaving.ready(near, READ)
        assert leaving.poller.closed == []
    far.send(b"x")
    leaving.ready(near, READ)
    assert leaving.poller.closed == [near]


def test_beyond_a_bound_of_peers_the_oldest_is_left(leaving, monkeypatch):
    monkeypatch.setattr(lingering_close, "MOST", 2)
    first, second, third = (leaving.say()[0] for _ in range(3))
    assert leaving.poller.closed == [first]
    assert len(leaving.every) == 2
    leaving.say()
    assert leaving.poller.closed == [first, second]
    assert third.fileno() >= 0


def test_a_broken_or_closed_connection_is_left_alone(leaving):
    near, _ = leaving.say()
    leaving.ready(near, BROKEN | READ)
    assert leaving.poller.closed == [near]
    leaving.every.say(near, b"words")
    assert len(leaving.every) == 0


@pytest.mark.parametrize("words", [b"words", b""])
def test_a_peer_that_is_gone_already_is_left(leaving, words):
    near = socket.socket()
    near.setblocking(False)
    leaving.every.say(near, words)  # never connected: neither words nor FIN go anywhere
    assert leaving.poller.closed == [near]
    assert len(leaving.every) == 0
