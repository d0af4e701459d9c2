"""JUnit XML that CI can read: well formed with any text, every verdict in its own element."""

from xml.etree import ElementTree as ET

from farmctl.reports.junit import as_junit


def test_each_verdict_has_its_element(report):
    suites = ET.fromstring(as_junit(report))
    suite = suites.find("testsuite")
    assert suites.tag == "testsuites"
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "5",
        "failures": "1",
        "errors": "2",
        "skipped": "1",
        "time": "30.000",
    }
    kinds = [[child.tag for child in case if child.tag != "system-out"] for case in suite]
    assert kinds == [[], ["failure"], ["error"], ["skipped"], ["error"]]
    assert suite[3].find("skipped").get("message") == "cut_off: needs root"


def test_what_xml_cannot_hold_is_replaced_and_markup_is_text(report, nasty):
    case = ET.fromstring(as_junit(report))[0][1]
    assert "<script>alert('&')</script>\N{REPLACEMENT CHARACTER}" in case.find("failure").get("message")
    assert list(case.find("failure")) == []
    assert "BROKEN" in case.find("system-out").text


def test_the_story_of_a_pass_is_kept(report):
    said = ET.fromstring(as_junit(report))[0][0].find("system-out").text
    assert "900 ms  fault  SIGKILL of p1" in said
    assert "ok  blast radius: expected 1, got 1" in said
