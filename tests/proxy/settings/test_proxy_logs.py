"""The log: one JSON line an event, and never an error of its own."""

import io
import json
import logging
import os

import pytest
from farmproxy.observe import logs


def parsed(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line():
    stream = io.BytesIO()
    logs.configure(stream).info("lease-ended", lease="01J", end="done", detail="a\nb")
    (line,) = parsed(stream)
    assert list(line)[:2] == ["event", "t"]
    assert line["t"] > 1e9
    assert (line["event"], line["lease"], line["detail"], line["level"]) == (
        "lease-ended",
        "01J",
        "a\nb",
        "info",
    )


def test_levels_filter():
    stream = io.BytesIO()
    logs.configure(stream).debug("no")
    assert stream.getvalue() == b""


class Awkward:
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value", [float("nan"), object(), {1: 2}, {(1, 2): 3}, "\ud800", b"\xff", Awkward(), {1, 2}]
)
def test_whatever_is_logged_a_line_comes_out(value):
    stream = io.BytesIO()
    logs.configure(stream).info("event", value=value)
    assert len(parsed(stream)) == 1


def test_a_traceback_is_a_field():
    stream = io.BytesIO()
    log = logs.configure(stream)
    try:
        raise KeyError("x")
    except KeyError:
        log.exception("broke")
    (line,) = parsed(stream)
    assert "KeyError" in line["exception"]


def test_libraries_speak_through_it():
    stream = io.BytesIO()
    logs.configure(stream)
    logging.getLogger("asyncio").warning("slow %d", 3)
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("x").warning("%d", "no number")
    first, second = parsed(stream)
    assert (first["event"], first["logger"], first["detail"]) == ("library", "asyncio", "slow 3")
    assert second["detail"] == "%d"


def test_a_closed_stdout_loses_lines_only():
    stream = io.BytesIO()
    log = logs.configure(stream)
    stream.close()
    log.info("lost")
    reading, writing = os.pipe()
    os.close(reading)
    pipe = os.fdopen(writing, "wb", buffering=0)
    logs.configure(pipe).info("lost too")
    pipe.close()


@pytest.fixture(autouse=True)
def _quiet_root():
    handlers = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    yield
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
