"""A report as one HTML file that needs nothing else: style and pictures inline, no script, every value escaped."""

from datetime import UTC, datetime
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from farmctl.reports.charts import chart
from farmctl.scenarios.results import Report, Verdict


def as_html(report: Report) -> str:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("farmctl.reports").joinpath("report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        report=report,
        Verdict=Verdict,
        counts=[(verdict, report.count(verdict)) for verdict in Verdict if report.count(verdict)],
        charts={result.name: chart(result) for result in report.results},
        began=datetime.fromtimestamp(report.began, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    )
