"""The JSON contract, the table for people, plain progress lines and the live picture."""

import io
import json

import pytest
from rich.console import Console

from farmctl.reports import summary
from farmctl.reports.json_files import as_json
from farmctl.reports.lines import Lines
from farmctl.reports.live import Picture, shown, state_of
from farmctl.scenarios.results import Fate, Report, Result, Span, Verdict


def test_json_shape(report):
    told = json.loads(as_json(report))
    assert told["version"] == 1
    assert told["exit_code"] == 130
    assert set(told) == {
        "version",
        "exit_code",
        "testbed",
        "machine",
        "farmctl",
        "began",
        "duration_s",
        "results",
    }
    first = told["results"][0]
    assert first["verdict"] == "passed"
    assert first["blast_radius"] == 1
    assert first["checks"][0] == {
        "name": "blast radius",
        "expected": "1",
        "got": "1",
        "passed": True,
        "evidence": [],
    }
    assert first["timeline"][0] == {
        "at_ms": 900,
        "wall": 1_800_000_000.9,
        "kind": "fault",
        "text": "SIGKILL of p1",
        "data": {},
    }
    assert first["fates"][0]["spans"][1] == {"state": "session", "from_ms": 100, "to_ms": 900, "pod": ""}


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["passed", "passed"], 0),
        (["passed", "not-here"], 0),
        (["passed", "failed"], 1),
        (["passed", "not-staged"], 3),
        (["failed", "not-staged"], 1),
        (["failed", "interrupted"], 130),
        (["not-here"], 3),
        ([], 3),
    ],
)
def test_exit_codes(verdicts, code):
    results = [Result("x", "y", Verdict(verdict)) for verdict in verdicts]
    assert Report("local", "m", "0", 0.0, results=results).exit_code == code


def text_of(draw):
    out = io.StringIO()
    draw(Console(file=out, width=160, highlight=False))
    return out.getvalue()


def test_the_table_and_the_evidence_of_what_failed(report):
    text = text_of(lambda console: summary.show(report, console))
    assert "1 of 5 passed on local in 30 s; 1 not on local" in text
    assert "expected 0, got got <script>" in text
    assert "SIGKILL of p1" not in text  # of five scenarios, those that passed are one line each
    alone = Report("local", "m", "0", 0.0, results=report.results[:1])
    text = text_of(lambda console: summary.show(alone, console))
    assert "SIGKILL of p1" in text
    assert "blast radius 1 of 2" in text
    assert "page-06: JobLost: gone -> done after 2 attempts" in text


def test_text_that_looks_like_rich_markup_is_printed_as_it_is():
    result = Result("x", "[bold]claim[/bold] [/]", Verdict.FAILED, reason="[red]r")
    text = text_of(lambda console: summary.show(Report("local", "m", "0", 0.0, results=[result]), console))
    assert "[bold]claim[/bold] [/]" in text
    assert "[red]r" in text


def tell(listener, report):
    for number, result in enumerate(report.results, 1):
        listener.began(result.name, result.claim, number, len(report.results))
        for moment in result.timeline:
            listener.moment(moment)
        for fate in result.fates:
            listener.caller(fate)
        for check in result.checks:
            listener.checked(check)
        listener.ended(result)


def test_plain_lines(report):
    out = io.StringIO()
    tell(Lines(out), report)
    said = out.getvalue()
    assert "[1/5] mid-job-kill: A killed pod costs one job." in said
    assert "0.90 s  fault  SIGKILL of p1" in said
    assert "caller page-06: done after JobLost: gone" in said
    assert "NOT-STAGED proxy-restart in 0.0 s: the kill did not happen" in said


def test_the_live_picture_draws_at_every_step(report):
    picture = Picture()
    tell(picture, report)
    picture.began("next", "claim", 5, 5)
    picture.caller(Fate("a", "raw", "unfinished", [], 1, [Span("session", 0)]))
    text = text_of(lambda console: console.print(picture))
    assert "mid-job-kill" in text
    assert "▶\N{NO-BREAK SPACE}a" in text


def test_the_live_picture_leaves_nothing_behind(report):
    out = io.StringIO()
    with shown(Console(file=out, force_terminal=True, width=100)) as picture:
        tell(picture, report)
    assert "\x1b[?25h" in out.getvalue()  # the cursor is back
    assert out.getvalue().endswith("\x1b[2K")  # and the last lines are wiped


@pytest.mark.parametrize(
    ("fate", "state"),
    [
        (Fate("a", "raw", "unfinished", [], 1, [Span("waiting", 0)]), "waiting"),
        (Fate("a", "raw", "done", [], 1, [Span("session", 0, 1)]), "done"),
        (Fate("a", "raw", "done", ["x"], 2, [Span("session", 0, 1)]), "done after an error"),
        (Fate("a", "raw", "lost", ["x"], 1, [Span("session", 0, 1)]), "lost"),
        (Fate("a", "raw", "unfinished", [], 0, []), "unfinished"),
    ],
)
def test_states_of_callers(fate, state):
    assert state_of(fate) == state
