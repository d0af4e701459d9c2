import io
import json
from dataclasses import replace

import pytest
import yaml
from rich.console import Console

from farmctl import cli
from farmctl.errors import StageError
from farmctl.reports import farm_status, status_tables
from farmctl.testbeds import finding
from farmctl.testbeds.base import Pod, Readiness
from farmctl.testbeds.looking import NodeSeen, Stray, Told, parsed
from farmctl.testbeds.overrides import Overrides

KNOWN = {
    "uid": "u1", "name": "b-1", "address": "10.0.0.9:9222", "state": "leased",
    "terminating": False, "lease": "01HLEASE", "faults": 0, "set_aside_s": 0.0,
}  # fmt: skip
PROXY = {
    "version": "1", "draining": False, "watch_age_s": 37.0,
    "pools": {"default": {"demand": 1, "pods": [KNOWN], "held": [], "leases": [{"id": "01HLEASE", "label": "nightly"}]}},
}  # fmt: skip
POD = Pod("b-1", "u1", "10.0.0.9:9222", "Running", ready=False, restarts=2, age_s=600.0, node="w-1")


class Farm:
    """A Look whose parts are what the test says; an exception stands for a part that is away."""

    kind, door, admin, kubectl = "kind", "http://d:1", "http://a:2", "kubectl -n farm"
    overrides = Overrides()

    def __init__(self, *, told=None, proxy=PROXY, nodes=()):
        self.said = told or Told(
            [POD], [Readiness("b-1", pod_ready=False, endpoint_ready=False, differs_s=0.0)]
        )
        self.status, self.seen, self.looks = proxy, list(nodes), 0

    async def told(self):
        self.looks += 1
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    async def proxy(self):
        return self.status

    async def nodes(self):
        return self.seen


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setattr(farm_status, "LOOK_AGAIN_S", 0.0)

    def run(farm, *words):
        async def look():
            return farm

        monkeypatch.setattr(finding, "look", look)
        code = cli.main(["status", *words])
        return code, capsys.readouterr().out

    return run


def test_both_views_side_by_side(run):
    farm = Farm()
    code, out = run(farm)
    assert (code, farm.looks) == (0, 1)
    assert ["b-1", "not-ready", "leased", "nightly", "2", "10.0.0.9:9222", "10m"] in [
        line.split() for line in out.splitlines()
    ]
    assert "pods Ready: 0, endpoints ready: 0" in out


@pytest.mark.parametrize("words", [[], ["-o", "wide"]])
def test_while_the_api_server_is_away_the_proxy_s_view_stands_and_says_how_old_it_is(run, words):
    farm = Farm(told=StageError("the API server does not answer: refused", hint="farmctl up repairs it"))
    code, out = run(farm, *words)
    assert code == 3
    assert "the API server does not answer: refused" in out
    assert "it last heard of the API server 37s ago" in out
    assert "try: farmctl up" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("b-1"))
    assert row[:3] == ["b-1", "<unknown>", "leased"]
    assert "pods Ready" not in out  # a number that nobody knows


def test_what_only_the_api_server_knows_is_null_while_it_is_away(run):
    told = json.loads(run(Farm(told=StageError("away")), "-o", "json")[1])
    assert (told["podsReady"], told["endpointsReady"]) == (None, None)
    assert [(pod["name"], pod["age_s"], pod["restarts"]) for pod in told["pods"]] == [("b-1", None, None)]


def test_another_s_cluster_is_not_ours_to_repair(run):
    farm = Farm(nodes=[NodeSeen("w-1", running=None, ready=False)])
    farm.kind = "existing"
    assert "ask who runs it" in run(farm)[1]


def test_in_another_s_cluster_the_proxy_is_asked_by_the_same_way_as_all_else(run):
    farm = Farm(
        told=StageError("the API server refuses: Forbidden", hint="kubectl auth can-i --list"), proxy=None
    )
    farm.kind = "existing"
    code, out = run(farm)
    assert code == 3
    assert "try: kubectl auth can-i --list" in out
    assert "nothing is known of it" in out
    assert "farmctl logs" not in out


def test_settings_that_differ_from_the_defaults_are_named(run):
    farm = Farm()
    farm.overrides = Overrides({"FARMAGENT_RECYCLE": "spare"}, {"FARMPROXY_HOLD_LIMIT": "5"})
    for words in ((), ("-o", "wide")):
        assert "FARMAGENT_RECYCLE=spare, FARMPROXY_HOLD_LIMIT=5" in run(farm, *words)[1]
    assert json.loads(run(farm, "-o", "json")[1])["settings"] == {
        "agent": {"FARMAGENT_RECYCLE": "spare"},
        "proxy": {"FARMPROXY_HOLD_LIMIT": "5"},
    }
    assert "settings" not in run(Farm())[1]


def test_while_the_proxy_is_away_the_api_s_view_stands(run):
    code, out = run(Farm(proxy=None))
    assert code == 3
    assert "b-1" in out
    assert "the proxy does not answer at http://a:2" in out
    assert "farmctl logs proxy" in out


def test_while_both_are_away_it_says_both(run):
    nodes = [NodeSeen("w-1", running=True, ready=None), NodeSeen("cp", running=False, ready=None)]
    code, out = run(
        Farm(
            told=StageError("the API server does not answer: refused", hint="farmctl up repairs it"),
            proxy=None,
            nodes=nodes,
        )
    )
    assert code == 3
    assert "node cp does not run" in out
    assert "w-1" not in out
    assert "the proxy does not answer" in out


def test_node_that_is_not_ready_is_told_and_fails_nothing_by_itself(run):
    code, out = run(Farm(nodes=[NodeSeen("w-1", running=True, ready=False)]))
    assert (code, "node w-1 is not Ready" in out) == (0, True)


def test_a_disagreement_that_one_look_cannot_tell_is_looked_at_twice(run):
    stray = Stray("10.9.9.9", "by-hand", managed=False)
    farm = Farm(told=Told([POD], [], (stray,)))
    code, out = run(farm)
    assert (code, farm.looks) == (3, 2)
    assert "10.9.9.9: slice by-hand says that it is ready" in out
    assert "try: kubectl -n farm delete endpointslice by-hand" in out


def test_one_remedy_for_many_pods_is_said_once(run):
    pods = [replace(POD, name=f"b-{n}", uid=f"u{n}") for n in range(3)]
    differing = [Readiness(pod.name, pod_ready=False, endpoint_ready=True, differs_s=90.0) for pod in pods]
    code, out = run(Farm(told=Told(pods, differing)))
    assert (code, out.count("for 90s"), out.count("kube-controller-manager")) == (3, 3, 1)


def test_json_and_yaml_are_the_same_contract(run):
    farm = Farm(told=Told([POD], [], (Stray("10.9.9.9", "by-hand", managed=False),)))
    told = json.loads(run(farm, "-o", "json")[1])
    assert told == yaml.safe_load(run(farm, "-o", "yaml")[1])
    assert told["api"] == {"answers": True, "problem": ""}
    assert [one["about"] for one in told["disagreements"]] == ["10.9.9.9"]
    assert run(farm, "-o", "name")[1] == "pod/b-1\n"


def test_a_draining_proxy_is_said_to_drain():
    seen = farm_status.FarmStatus("kind", "d", "a", [], {**PROXY, "draining": True})
    out = io.StringIO()
    Console(file=out, width=200).print(*status_tables.lines(seen), sep="\n")
    assert "the proxy drains" in out.getvalue()


@pytest.mark.parametrize("text", ["", "null", "[]", '{"pools": []}', "<html>"])
def test_another_server_at_the_admin_port_is_no_proxy(text):
    assert parsed(text) is None
