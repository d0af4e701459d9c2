"""One direction of a session on its own: which bytes wait, when a pipe is lent, and when it is given back."""

import contextlib
import errno
import os
import socket

import pytest
from farmproxy.tunnel import flows, pipes
from farmproxy.tunnel.flows import Flow, SinkBroke, SourceBroke, SourceClosed
from farmproxy.tunnel.pipes import Pipes

FULL = 64 * 1024


class Told:
    bytes_up = 0
    bytes_down = 0


class Line:
    """A flow from ``source`` to ``sink``, the far ends."""

    def __init__(self, *, up=True):
        self.source, self.src = socket.socketpair()
        self.dst, self.sink = socket.socketpair()
        for sock in (self.source, self.src, self.dst, self.sink):
            sock.setblocking(False)
        self.pipes = Pipes()
        self.told = Told()
        self.flow = Flow(self.src, self.dst, self.pipes, self.told, up=up)

    def say(self, data):
        self.source.sendall(data)
        return self.flow.pump()

    def heard(self):
        got = bytearray()
        with contextlib.suppress(BlockingIOError):
            while data := self.sink.recv(1 << 20):
                got += data
        return bytes(got)

    def make_bulk(self):
        for _ in range(4):
            assert self.say(b"b" * FULL) is False
            assert self.heard() == b"b" * FULL

    def stuff(self):
        """Leave the destination no room; how many bytes that took."""
        stuffed = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                stuffed += self.dst.send(b"r" * 1024)
        return stuffed

    def close(self):
        for sock in (self.source, self.src, self.dst, self.sink):
            sock.close()
        self.flow.drop()
        self.pipes.close()


@pytest.fixture
def new_line():
    lines = []

    def make(**how):
        lines.append(Line(**how))
        return lines[-1]

    yield make
    for line in lines:
        line.close()


@pytest.fixture
def line(new_line):
    return new_line()


@pytest.mark.parametrize("up", [True, False])
def test_bytes_are_counted_where_they_go(new_line, up):
    line = new_line(up=up)
    assert line.say(b"hello") is True
    assert line.heard() == b"hello"
    assert line.flow.total == 5
    assert (line.told.bytes_up, line.told.bytes_down) == ((5, 0) if up else (0, 5))


def test_first_bytes_that_did_not_come_from_the_source(line):
    line.flow.begin(3, b"rest")
    assert (line.flow.total, line.flow.waits) == (3, True)
    assert line.flow.flush() == 4
    assert (line.flow.total, line.flow.waits, line.heard()) == (7, False, b"rest")


def test_nothing_to_begin_with_waits_for_nothing(line):
    line.flow.begin(3, b"")
    assert line.flow.waits is False


def test_what_the_sink_does_not_take_waits_and_is_written_later(line):
    stuffed = line.stuff()
    assert line.say(b"later") is True
    assert (line.flow.waits, line.flow.total) == (True, 0)
    assert line.flow.flush() == 0
    assert line.flow.waits is True
    assert line.heard() == b"r" * stuffed
    assert line.flow.flush() == 5
    assert (line.flow.waits, line.flow.total, line.heard()) == (False, 5, b"later")


def test_an_empty_source_is_no_end(line):
    assert line.flow.pump() is False
    line.make_bulk()
    assert line.flow.pump() is False
    assert line.heard() == b""


def test_four_full_reads_in_a_row_borrow_a_pipe(line):
    for reads in range(3):
        line.say(b"b" * FULL)
        line.heard()
        assert line.pipes.lent == 0, reads
    line.say(b"b" * (FULL - 1))  # not in a row
    line.heard()
    for _ in range(3):
        line.say(b"b" * FULL)
        line.heard()
    assert line.pipes.lent == 0
    line.say(b"b" * FULL)
    assert line.pipes.lent == 1


def test_bytes_through_a_pipe_arrive_and_are_counted(line):
    line.make_bulk()
    assert line.say(b"piped") is False
    assert line.heard() == b"piped"
    assert line.flow.total == 4 * FULL + 5
    assert line.flow.waits is False


def small(line, number):
    for _ in range(number):
        line.say(b"s")
        assert line.heard() == b"s"


def test_sixteen_small_reads_in_a_row_give_the_pipe_back(line):
    line.make_bulk()
    small(line, 15)
    line.say(b"m" * (16 * 1024))
    line.heard()
    small(line, 15)
    assert line.pipes.lent == 1
    small(line, 1)
    assert line.pipes.lent == 0
    small(line, 1)  # and goes on without
    line.make_bulk()  # until it is bulk again
    assert line.pipes.lent == 1


def test_a_pipe_with_bytes_in_it_is_not_given_back(line):
    # They would be lost: the sixteenth small read meets a sink that takes nothing.
    line.make_bulk()
    small(line, 15)
    stuffed = line.stuff()
    line.say(b"last words")
    assert (line.flow.waits, line.pipes.lent) == (True, 1)
    assert line.heard() == b"r" * stuffed
    assert line.flow.flush() == len(b"last words")
    assert (line.flow.waits, line.heard()) == (False, b"last words")
    small(line, 1)
    assert line.pipes.lent == 0


def test_what_waited_before_the_pipe_was_lent_comes_before_what_is_in_it(line):
    for _ in range(3):
        line.say(b"b" * FULL)
        line.heard()
    stuffed = line.stuff()
    line.say(b"c" * FULL)
    assert (line.flow.waits, line.pipes.lent) == (True, 1)
    got = line.heard()
    while line.flow.waits:
        line.flow.flush()
        got += line.heard()
    assert got == b"r" * stuffed + b"c" * FULL
    line.say(b"d")
    assert line.heard() == b"d"


def test_what_is_dropped_is_never_written_and_its_pipe_is_closed(line):
    line.make_bulk()
    line.stuff()
    line.say(b"lost")
    line.flow.drop()
    line.heard()
    assert (line.flow.waits, line.pipes.lent, line.pipes.open) == (False, 0, 0)
    assert line.flow.flush() == 0
    assert line.heard() == b""


@pytest.mark.parametrize("bulk", [True, False])
def test_the_source_s_end_is_told(new_line, bulk):
    line = new_line()
    if bulk:
        line.make_bulk()
    line.source.close()
    with pytest.raises(SourceClosed):
        line.flow.pump()


class Broken(socket.socket):
    """A socket that answers with an error."""

    def recv_into(self, _buffer):
        raise OSError(errno.ETIMEDOUT, "")

    def send(self, _data):
        raise OSError(errno.EPIPE, "")


@pytest.mark.parametrize("waiting", [True, False])
def test_a_broken_sink_is_told_with_its_code(new_line, waiting):
    line = new_line()
    if waiting:
        line.flow.begin(0, b"x")
    line.flow.dst = Broken()
    with pytest.raises(SinkBroke) as broke:
        line.flow.flush() if waiting else line.say(b"x")
    assert broke.value.code == errno.EPIPE
    line.flow.dst.close()


def test_a_broken_source_is_told_with_its_code_and_is_no_sink(line):
    line.flow.src = Broken()
    with pytest.raises(SourceBroke) as broke:
        line.flow.pump()
    assert broke.value.code == errno.ETIMEDOUT
    assert not isinstance(broke.value, SinkBroke)
    line.flow.src.close()


def test_a_broken_source_of_a_pipe_is_told_with_its_code(line, monkeypatch):
    line.make_bulk()

    def broken(*_args, **_flags):
        raise OSError(errno.ECONNRESET, "")

    monkeypatch.setattr(flows.os, "splice", broken)
    with pytest.raises(SourceBroke) as broke:
        line.flow.pump()
    assert broke.value.code == errno.ECONNRESET


# Pipes


def test_pipes_are_lent_up_to_a_limit_and_few_are_kept(monkeypatch):
    monkeypatch.setattr(pipes, "_LIMIT", 6)
    lender = Pipes()
    lent = [lender.lend() for _ in range(6)]
    assert None not in lent
    assert lender.lend() is None
    assert (lender.lent, lender.open) == (6, 12)
    for pipe in lent:
        lender.give_back(pipe)
    assert (lender.lent, lender.open) == (0, 8)
    assert lender.lend() in lent  # a kept one
    assert lender.open == 8
    lender.close()
    for pipe in lent[:3]:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(pipe.read_fd)
    os.close(lent[3].read_fd)
    os.close(lent[3].write_fd)


def test_a_pipe_with_bytes_in_it_never_carries_them_to_another():
    lender = Pipes()
    pipe = lender.lend()
    pipe.held = os.write(pipe.write_fd, b"secret")
    lender.give_back(pipe)
    for fd in (pipe.read_fd, pipe.write_fd):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert lender.open == 0


def test_without_descriptors_there_is_no_pipe(monkeypatch):
    def none_left(_flags):
        raise OSError(errno.EMFILE, "")

    monkeypatch.setattr(pipes.os, "pipe2", none_left)
    lender = Pipes()
    assert lender.lend() is None
    assert (lender.lent, lender.open) == (0, 0)


def test_a_pipe_never_blocks_is_not_inherited_and_takes_a_mebibyte():
    lender = Pipes()
    pipe = lender.lend()
    assert not os.get_blocking(pipe.read_fd)
    assert not os.get_blocking(pipe.write_fd)
    assert not os.get_inheritable(pipe.read_fd)
    assert pipes.fcntl.fcntl(pipe.write_fd, pipes.fcntl.F_GETPIPE_SZ) == pipes.PIPE_BYTES
    lender.give_back(pipe)
    lender.close()
