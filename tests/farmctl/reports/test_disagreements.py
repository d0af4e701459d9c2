from dataclasses import replace

import pytest

from farmctl.reports import disagreements
from farmctl.reports.disagreements import Compared, Disagreement
from farmctl.testbeds.base import Pod
from farmctl.testbeds.looking import Stray

POD = Pod("b-1", "u1", "10.0.0.9:9222", "Running", ready=True, restarts=0, age_s=600.0)
KNOWN = {"uid": "u1", "name": "b-1", "address": "10.0.0.9:9222", "state": "free", "terminating": False}
KUBECTL = "kubectl -n farm"


def status(*pods, watch_age_s=1.0):
    return {"watch_age_s": watch_age_s, "pools": {"default": {"pods": list(pods)}}}


def compare(
    known=KNOWN, phase="Running", pod_ready=True, endpoint_ready=True, differs_s=0.0, changed_s=300.0
):
    return Compared(replace(POD, phase=phase), pod_ready, endpoint_ready, differs_s, changed_s, known)


def told(one, *, proxy=None, strays=()):
    return disagreements.found([one], strays, status(KNOWN) if proxy is None else proxy, KUBECTL)


def test_who_agrees_is_not_told_of():
    assert told(compare()) == []
    leased = {**KNOWN, "state": "leased"}
    assert told(compare(leased, pod_ready=False, endpoint_ready=False), proxy=status(leased)) == []


@pytest.mark.parametrize(
    ("pod_ready", "what"),
    [(True, "pod ready, endpoint not-ready"), (False, "pod not-ready, endpoint ready")],
)
def test_pod_and_endpoint_disagree_for_hours(pod_ready, what):
    [one] = told(compare(pod_ready=pod_ready, endpoint_ready=not pod_ready, differs_s=300.0))
    assert (one.about, one.what, one.for_s) == ("b-1", what, 300.0)
    assert "kube-controller-manager" in one.remedy
    assert "kubectl -n farm delete pod NAME" in one.remedy
    assert one.lasts(30, earlier=())  # a dated one needs no second look
    assert not one.lasts(301, earlier=[one])


def test_ready_endpoint_of_no_pod_is_told_with_its_slice():
    stray = Stray("10.9.9.9", "by-hand", managed=False)
    known = {**KNOWN, "uid": "10.9.9.9:9222", "name": "", "address": "10.9.9.9:9222", "state": "set-aside"}
    [one] = told(
        compare(), proxy=status(KNOWN, known), strays=[stray]
    )  # once, not by the proxy's list as well
    assert (one.about, one.remedy) == ("10.9.9.9", "kubectl -n farm delete endpointslice by-hand")
    assert not one.lasts(0, earlier=())
    assert one.lasts(0, earlier=[one])


def test_pod_that_the_proxy_does_not_know():
    [one] = told(compare(known={}), proxy=status())
    assert "does not know it" in one.what
    assert not one.lasts(30, earlier=())
    assert one.lasts(30, earlier=[one])
    [young] = told(compare(known={}, changed_s=3.0), proxy=status())
    assert not young.lasts(30, earlier=[young])  # its endpoint is on the way


def test_pod_that_only_the_proxy_knows():
    gone = {**KNOWN, "uid": "u0", "name": "b-0"}
    [one] = told(compare(), proxy=status(KNOWN, gone))
    assert (one.about, one.twice) == ("b-0", True)
    assert "knows no such pod" in one.what


@pytest.mark.parametrize(("state", "word"), [("set-aside", "set aside"), ("unready", "not free")])
def test_ready_pod_that_the_proxy_does_not_get_through_to(state, word):
    known = {**KNOWN, "state": state}
    [one] = told(compare(known), proxy=status(known))
    assert word in one.what
    assert "farmctl logs b-1" in one.remedy


@pytest.mark.parametrize("phase", ["Terminating", "Failed"])
def test_free_for_the_proxy_and_ending_for_the_api(phase):
    [one] = told(compare(phase=phase, pod_ready=False, endpoint_ready=False))
    assert one.what.startswith(phase.lower())
    known = {**KNOWN, "terminating": True}
    assert phase == "Failed" or not told(
        compare(known, phase=phase, pod_ready=False, endpoint_ready=False), proxy=status(known)
    )


def test_watch_that_hears_nothing_although_the_api_server_answers():
    [one] = told(compare(), proxy=status(KNOWN, watch_age_s=400.0))
    assert (one.about, one.for_s) == ("watch", 400.0)
    assert "rollout restart deployment/proxy" in one.remedy
    assert told(compare(), proxy=status(KNOWN, watch_age_s=70.0)) == []  # a bookmark comes each minute


def test_without_the_proxy_only_pods_and_slices_are_compared():
    stray = Stray("10.9.9.9", "by-hand", managed=True)
    found = disagreements.found([compare(known={})], [stray], None, KUBECTL)
    assert [one.about for one in found] == ["10.9.9.9"]


def test_what_is_over_at_the_second_look_was_a_moment_s_lag():
    before = Disagreement("b-1", "x", "y")
    assert disagreements.settled([Disagreement("b-2", "x", "y")], [before], 0) == []
    assert disagreements.settled([before], [before], 0) == [before]
