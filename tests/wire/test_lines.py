"""Log lines to readers that are slow, stopped or gone: whoever writes them never waits."""

import contextlib
import io
import json
import os
import pty
import select
import socket
import tty

import pytest
from farmwire import lines
from farmwire.lines import LineWriter


@pytest.fixture(params=["pipe", "socket", "terminal"])
def stream_and_reader(request):
    """A stream that nobody reads yet, and the descriptor it can be read from."""
    if request.param == "pipe":
        reading, writing = os.pipe()
    elif request.param == "socket":
        ours, theirs = socket.socketpair()
        reading, writing = theirs.detach(), ours.detach()
    else:
        reading, writing = pty.openpty()
        tty.setraw(writing)
    stream = os.fdopen(writing, "wb", buffering=0)
    yield stream, reading
    stream.close()
    os.close(reading)


@pytest.fixture
def writing_to():
    with contextlib.ExitStack() as stack:

        def make(stream):
            writer = LineWriter(stream)
            stack.callback(writer.close)
            return writer

        yield make


def read_all(writer, fd):
    """What a reader gets that begins now, while the writer is asked to flush."""
    got = bytearray()
    while writer.flush() or select.select([fd], [], [], 0.2)[0]:
        got += os.read(fd, 65536)
    return bytes(got).splitlines()


def test_a_reader_that_does_not_read_loses_whole_lines_and_is_told_how_many(
    stream_and_reader, monkeypatch, writing_to
):
    monkeypatch.setattr(lines, "KEPT_LIMIT", 20_000)
    stream, reading = stream_and_reader
    writer = writing_to(stream)
    sent = [b"%06d" % number + b"x" * 300 for number in range(10_000)]
    for line in sent:
        writer.write(line)  # 3 MB into a pipe of 64 KiB: would stop here for ever
    assert 0 < writer.dropped < len(sent)
    got = read_all(writer, reading)
    notices = [json.loads(line) for line in got if line.startswith(b"{")]
    assert {notice["event"] for notice in notices} == {"log-lines-dropped"}
    assert sum(notice["lines"] for notice in notices) == writer.dropped
    whole = [line for line in got if not line.startswith(b"{")]
    assert whole == [line for line in sent if line in set(whole)]
    assert len(whole) + writer.dropped == len(sent)
    writer.write(b"and on")
    assert read_all(writer, reading) == [b"and on"]


def test_a_reader_that_is_a_little_behind_loses_nothing(stream_and_reader, writing_to):
    stream, reading = stream_and_reader
    writer = writing_to(stream)
    sent = [b"%06d" % number + b"x" * 1000 for number in range(500)]
    for line in sent:
        writer.write(line)
    assert read_all(writer, reading) == sent
    assert writer.dropped == 0


def test_other_programs_on_the_same_pipe_still_wait(stream_and_reader, writing_to):
    stream, _ = stream_and_reader
    writing_to(stream).write(b"x")
    assert os.get_blocking(stream.fileno())


def test_a_reader_that_is_gone_costs_its_lines_only(writing_to):
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "wb", buffering=0)
    before = writing_to(stream)
    os.close(reading)
    after = writing_to(stream)
    for writer in (before, after):
        writer.write(b"lost")
        writer.write(b"lost")
        assert writer.dropped == 2
    stream.close()


def test_a_file_grows_at_its_end(tmp_path, writing_to):
    file = tmp_path / "log"
    file.write_bytes(b"before\n")
    with file.open("ab") as stream:
        writing_to(stream).write(b"after")
    assert file.read_bytes() == b"before\nafter\n"


@pytest.mark.parametrize("stream", [io.BytesIO(), io.StringIO()])
def test_what_only_looks_like_a_stream(stream):
    LineWriter(stream).write(b"x")
    assert stream.getvalue() in (b"x\n", "x\n")
