"""A session on its own, by a clock that is moved: when its caller counts as idle, and how it ends."""

import asyncio
import socket

import pytest
from farmproxy.net.poller import BROKEN, GONE, READ, Poller
from farmproxy.tunnel import tunnels
from farmproxy.tunnel.lingering_close import LingeringClose
from farmproxy.tunnel.tunnels import RelayDesk, Tunnel
from farmwire.reasons import End


class Told:
    bytes_up = 0
    bytes_down = 0


class Session:
    def __init__(self, clock, idle_s):
        self.clock, self.idle_s = clock, idle_s
        self.poller = Poller(lambda error, handler: pytest.fail(repr(error)))
        self.poller.start(asyncio.get_running_loop())
        bye = LingeringClose(self.poller, clock)
        self.desk = RelayDesk(self.poller, bye, Told(), clock, stall_s=80, keepalive_s=1e9, idle_s=idle_s)
        pairs = [socket.socketpair() for _ in range(2)]
        for sock in (*pairs[0], *pairs[1]):
            sock.setblocking(False)
        (self.caller, near_caller), (self.pod, near_pod) = pairs
        for sock in (near_caller, near_pod):
            self.poller.watch(sock, READ, print)
        self.ended, self.idle_told = [], 0
        self.tunnel = Tunnel(
            self.desk, near_caller, near_pod, lambda end, kept: self.ended.append((end, kept))
        )
        self.tunnel.start(0, b"")
        self.tunnel.limit_idle(self.on_idle)

    def on_idle(self):
        self.idle_told += 1

    def look(self, times=1):
        for _ in range(times):
            self.clock.now += self.idle_s / 8
            self.desk.sweep()

    def say(self, sock):
        sock.send(b"x")
        self.poller.catch_up()

    def stop(self):
        self.poller.stop()
        self.caller.close()
        self.pod.close()


@pytest.fixture
async def new_session(clock):
    sessions = []

    def make(idle_s=80.0):
        sessions.append(Session(clock, idle_s))
        return sessions[-1]

    yield make
    for session in sessions:
        session.stop()


async def test_eight_silent_looks_are_the_idle_limit(new_session):
    session = new_session()
    session.look(7)
    assert (session.tunnel.idle, session.idle_told) == (False, 0)
    session.look()
    assert (session.tunnel.idle, session.idle_told) == (True, 1)
    session.look()  # told again, for another connection of the lease may have been busy then
    assert session.idle_told == 2
    assert session.ended == []  # whether that ends the lease is for its owner to say


async def test_a_byte_of_the_caller_begins_the_limit_anew(new_session):
    session = new_session()
    session.look(7)
    session.say(session.caller)
    session.look(8)
    assert session.tunnel.idle is False
    session.look()
    assert session.tunnel.idle is True


async def test_what_the_pod_says_is_no_sign_of_the_caller(new_session):
    session = new_session()
    for _ in range(8):
        session.say(session.pod)
        session.look()
    assert session.tunnel.idle is True
    assert session.tunnel.answered
    assert (session.tunnel.bytes_up, session.tunnel.bytes_down) == (0, 8)


async def test_without_a_limit_nobody_is_idle(new_session):
    session = new_session(idle_s=0)
    session.clock.now += 1e6
    session.desk.sweep()
    assert (session.tunnel.idle, session.idle_told) == (False, 0)


async def test_an_ended_session_is_looked_at_no_more(new_session):
    session = new_session()
    session.tunnel.close(End.DELETED)
    session.tunnel.close(End.DONE)
    session.look(20)
    assert session.ended == [(End.DELETED, True)]  # no byte of an answer was sent: its owner says why
    assert session.idle_told == 0
    assert [len(timer) for timer in (session.desk.stall, session.desk.look, session.desk.idle)] == [0, 0, 0]


# How a session ends


def until_the_caller_takes_no_more(session):
    while not session.tunnel._down.waits:
        session.pod.send(b"d" * 65536)
        session.poller.catch_up()


async def test_a_fault_of_ours_ends_it_as_a_lost_pod(new_session):
    session = new_session()
    session.tunnel.give_up()
    assert session.ended == [(End.POD_LOST, True)]


async def test_a_caller_that_went_while_the_pod_speaks_is_done(new_session):
    session = new_session()
    session.caller.close()
    session.pod.send(b"too late")
    session.tunnel._on_pod(READ)
    assert session.ended == [(End.DONE, False)]


async def test_eight_looks_that_find_the_caller_s_buffer_as_full_as_before_are_a_stall(
    new_session, monkeypatch
):
    session = new_session()  # looks each ten seconds
    monkeypatch.setattr(tunnels, "queued_bytes", lambda sock: 1000)
    monkeypatch.setattr(tunnels, "unheard_s", lambda sock: (False, 0.0))
    until_the_caller_takes_no_more(session)
    session.look(8)  # the first only learns how full it is
    assert session.ended == []
    session.look()
    assert session.ended == [(End.STALL, False)]


async def test_a_pod_that_breaks_while_the_caller_takes_nothing_is_lost(new_session):
    session = new_session()
    until_the_caller_takes_no_more(session)
    session.tunnel._on_pod(BROKEN)
    assert session.ended == [(End.POD_LOST, False)]
    assert session.tunnel.by_pod


async def test_a_caller_that_leaves_a_pod_that_takes_nothing_more_is_done(new_session):
    session = new_session()
    session.tunnel._muted = True
    session.tunnel._on_caller(GONE | READ)
    assert session.ended == [(End.DONE, False)]
