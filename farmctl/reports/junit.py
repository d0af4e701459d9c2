"""A report as JUnit XML, for CI: a broken claim is a failure, a stage not set an error, a scenario not here skipped."""

import re
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from farmctl.scenarios.results import Report, Result, Verdict

# XML 1.0 has no place for these, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(report: Report) -> bytes:
    """Return one test suite with a test case a scenario; its checks and timeline stand in system-out."""
    suite = ET.Element(
        "testsuite",
        name=f"farmctl scenarios on {report.testbed}",
        tests=str(len(report.results)),
        failures=str(report.count(Verdict.FAILED)),
        errors=str(report.count(Verdict.NOT_STAGED) + report.count(Verdict.INTERRUPTED)),
        skipped=str(report.count(Verdict.NOT_HERE)),
        time=f"{report.duration_s:.3f}",
        timestamp=datetime.fromtimestamp(report.began, UTC).isoformat(timespec="seconds"),
        hostname=report.machine,
    )
    for result in report.results:
        suite.append(_case(report, result))
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(report: Report, result: Result) -> ET.Element:
    case = ET.Element(
        "testcase",
        name=_clean(result.name),
        classname=f"farmctl.scenarios.{report.testbed}",
        time=f"{result.duration_s:.3f}",
    )
    kind = {Verdict.FAILED: "failure", Verdict.NOT_HERE: "skipped"}.get(result.verdict, "error")
    if result.verdict is not Verdict.PASSED:
        said = ET.SubElement(case, kind, message=_clean(result.reason or result.verdict))
        if kind != "skipped":
            said.set("type", result.verdict)
            said.text = _clean("\n".join([result.claim, *_broken(result)]))
    ET.SubElement(case, "system-out").text = _clean("\n".join(_story(result)))
    return case


def _broken(result: Result) -> list[str]:
    return [
        f"{check.name}: expected {check.expected}, got {check.got}"
        for check in [*result.checks, *result.invariants]
        if not check.passed
    ]


def _story(result: Result) -> list[str]:
    checks = [
        f"{'ok' if check.passed else 'BROKEN'}  {check.name}: expected {check.expected}, got {check.got}"
        for check in [*result.checks, *result.invariants]
    ]
    moments = [f"{moment.at_ms:>7} ms  {moment.kind:6} {moment.text}" for moment in result.timeline]
    return [result.claim, *moments, *checks]


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
