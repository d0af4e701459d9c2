"""The HTML report: complete, self-contained, and nothing that a page or an error said is ever markup."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser

from rich.console import Console

from farmctl.reports import summary
from farmctl.reports.charts import chart
from farmctl.reports.html import as_html
from farmctl.scenarios.results import Fate, Result, Span, Verdict

VOID = {"meta", "line", "input", "br"}


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.open, self.refs = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.refs += [value for key, value in attrs if key in {"src", "href", "xlink:href", "action"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(html):
    reader = Reader()
    reader.feed(html)
    return reader


def test_it_is_one_whole_file_that_asks_for_nothing(report):
    html = as_html(report)
    reader = read(html)
    assert reader.open == []
    assert "script" not in reader.tags
    assert "link" not in reader.tags
    assert "img" not in reader.tags
    assert all(ref.startswith("#") for ref in reader.refs)
    assert "url(" not in html
    assert "http" not in html


def test_every_value_is_escaped(report):
    html = as_html(report)
    assert "<script>" not in html
    assert (
        html.count("&lt;script&gt;") >= 8
    )  # claim (twice), reason, check, got, evidence, caller, error, fault


def test_it_shows_verdicts_faults_errors_and_checks(report):
    html = as_html(report)
    text = re.sub(r"<[^>]+>", " ", html)
    for told in (
        "1 of 5 scenarios passed",
        "mid-job-kill",
        "SIGKILL of p1",
        "JobLost: gone",
        "not-here",
        "438",
    ):
        assert told in text
    svg = html[html.index("<svg") : html.index("</svg>")]
    assert svg.count("<rect") == 5
    assert svg.count('class="error"') == 1
    assert svg.count('class="fault"') == 1


def test_a_caller_that_never_ended_reaches_to_the_edge_and_one_without_time_is_left_out():
    fates = [
        Fate("a", "raw", "done", [], 1, [Span("session", 0, 1000)]),
        Fate("b", "raw", "unfinished", [], 1, [Span("waiting", 0)]),
        Fate("c", "raw", "unfinished", [], 0, []),
    ]
    drawn = chart(Result("x", "y", Verdict.FAILED, fates=fates))
    assert [bar.state for bar in drawn.bars] == ["session", "waiting"]
    assert drawn.bars[1].width > drawn.bars[0].width
    assert chart(Result("x", "y", Verdict.FAILED)) is None


def test_two_hundred_callers_get_thin_rows_and_no_names():
    fates = [Fate(f"c{n}", "raw", "done", [], 1, [Span("session", 0, 10)]) for n in range(200)]
    drawn = chart(Result("x", "y", Verdict.PASSED, fates=fates))
    assert drawn.names == []
    assert drawn.height < 1200
    assert all(0 < tick.x <= drawn.width for tick in drawn.ticks)
    assert len(drawn.ticks) <= 12


def test_a_refusal_that_the_scenario_meant_is_no_error_of_the_blast_radius(report):
    """One that is sent to be refused beside one that is hurt: only the second has a cross, and the page says why."""
    session = [Span("waiting", 0, 50)]
    report.results[0].fates += [Fate("at-the-door", "raw", "refused", ["503 no-free-pod"], 1, session, True)]
    html = as_html(report)
    svg = html[html.index("<svg") : html.index("</svg>")]
    assert svg.count('class="error"') == report.results[0].blast_radius == 1
    assert svg.count('class="meant"') == 1
    assert 'class="struck">at-the-door' not in svg
    text = re.sub(r"<[^>]+>", " ", html)
    assert "not mean them to see" in text
    assert "refused, as meant" in text
    assert "○ refused, as the scenario meant" in text
    out = io.StringIO()
    summary.show(replace(report, results=report.results[:1]), Console(file=out, width=200))
    assert "callers: ●●○  blast radius 1 of 3" in out.getvalue()
    assert "at-the-door" not in out.getvalue()
