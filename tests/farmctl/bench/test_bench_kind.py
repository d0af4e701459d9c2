import json
import subprocess
import sys
from pathlib import Path

import pytest

from farmctl.bench import docs, suite
from farmctl.bench.kind import builds, readiness_lag, up_times, watch_times
from farmctl.bench.measures import kind
from farmctl.bench.results import Run, load
from farmctl.errors import StageError
from farmctl.images import farm, records
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder


def line(event, t, **more):
    return json.dumps({"event": event, "t": t, **more})


def test_the_word_is_timed_from_the_clean_pod_to_the_lease_after_it():
    logs = {
        "b-1": [
            line("lease-began", 10.0),
            line("lease-ended", 11.0),
            line("recycled", 12.5, recycle_s=1.5),
            line("free", 12.5),
            line("lease-began", 12.504),
            line("free", 14.0),
            line("lease-began", 99.0),  # of a later round: not what was waited for
        ],
        "b-2": [line("free", 1.0)],
    }
    found = readiness_lag.heard(logs)
    assert found.session_ms == pytest.approx([4.0])
    assert found.recycle_s == [1.5]


def test_no_such_moment_is_no_figure():
    with pytest.raises(StageError):
        readiness_lag.heard({"b-1": [line("free", 1.0)]})
    with pytest.raises(StageError):
        readiness_lag.free_moments({"b-1": [line("lease-began", 1.0)]})


def event(ready, kind="MODIFIED", name="s"):
    endpoint = {"addresses": ["10.0.0.9"], "conditions": {"ready": ready}, "targetRef": {"uid": "u1"}}
    return {"type": kind, "object": {"metadata": {"name": name}, "endpoints": [endpoint]}}


def test_a_slice_s_moment_is_the_change_to_ready_and_no_repetition():
    slices = watch_times.Slices()
    for ready, now in ((True, 1.0), (False, 2.0), (True, 3.0), (True, 4.0)):
        slices.changed(event(ready), now)
    assert slices.ready_at == {"u1": 3.0}
    slices.changed(event(True, "DELETED"), 5.0)
    assert slices.ready == set()


def test_an_up_is_read_by_its_own_steps():
    said = [
        "testbed: kind (asked for)",
        "   6.1 s  building docker.io/library/farm-browser:abc",
        "   8.0 s  loading docker.io/library/farm-browser:abc into w-1, w-2",
        "   1.0 s  loading docker.io/library/farm-proxy:abc into cp",
        "  10.1 s  applying the manifests",
        "whole after 28.1 s",
    ]
    up = up_times.Up(28.2, tuple(up_times.steps(said)))
    assert (up.spent_s("building"), up.spent_s("loading")) == (6.1, 9.0)
    assert up_times.Changed(28.2, 6.1, 9.0).rolled_s == pytest.approx(13.1)


def test_a_changed_copy_is_another_image_and_the_working_tree_is_not_touched():
    asking = "from farmctl.images import farm, catalogue; print(catalogue.ROOT, farm.tag_of('browser'), farm.tag_of('proxy'))"

    def asked(folder=None):
        return subprocess.run(
            [sys.executable, "-c", asking], cwd=folder, env={"PYTHONPATH": str(folder or ""), "PATH": "/bin:/usr/bin"},
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip

    ours = farm.installed("farmagent") / up_times.CHANGED.name
    before, here = ours.read_bytes(), asked()
    with up_times.Copy() as copy:
        same = asked(copy.path)
        assert same == [str(copy.path / "farmctl/data"), *here[1:]]
        copy.change()
        _root, browser, proxy = asked(copy.path)
        copy.change()
        assert asked(copy.path)[1] != browser
    assert browser != here[1]
    assert proxy == here[2]
    assert not copy.path.exists()
    assert ours.read_bytes() == before


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A farm of which nothing runs: sizes by a stub engine, one recorded step."""

    class Engine:
        name, version = "podman", "4.3.1"

        def image_bytes(self, tag):
            return {"f:browser": 607_000_000, "f:proxy": 160_000_000}.get(tag, 10**9)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(builds.engines, "find", lambda _named: Engine())
    images = {"browser": "f:browser", "proxy": "f:proxy"}
    KindFolder().write(Installed(phase="up", shape=Shape(node_image="node:1"), images=images))
    records.keep(tmp_path / "cache/farmctl", "go: kubelet", "v1", 712.0)
    ups = [up_times.Changed(seconds, 6.0, 8.0) for seconds in (28.0, 30.0, 90.0)]
    samples = kind.Samples(
        [8.0, 9.0, 10.0], ups, [5.0] * 3, [4.0, 5.0, 6.0], [1200.0, 1000.0, 90.0], [9.0] * 3, [1.5] * 3
    )
    return kind.section(3, samples, 4)


def test_targets_are_judged_by_medians_of_paired_rounds(measured):
    assert [(one.target, round(one.value, 1), one.met) for one in measured.verdicts] == [
        ("up, the agent's code changed", 30.0, True),
        ("clean to free for the proxy, times sooner than the slice", 200.0, True),
    ]


def test_the_page_says_what_it_is_of_and_invents_no_build(measured, tmp_path):
    run = Run({"cpu": "a CPU", "cores_of_the_proxy": 1}, {}, "2026-01-01T00:00:00+00:00", False, [measured])
    source = tmp_path / "performance-kind.json"
    source.write_text(run.as_json())
    page = docs.write(source)
    assert page == tmp_path / "performance-kind.md"
    text = page.read_text()
    assert "`farmctl bench kind --out docs/performance-kind.json` measures anew" in text
    assert "cores of the proxy" not in text
    assert "Both proxies" not in text
    assert "| image: browser | MB | 607 |" in text
    assert "| cold build, go: kubelet | s | 712 |" in text
    assert "cold build, go: kubeadm" not in text


def test_a_cluster_is_measured_only_when_named():
    assert "kind" not in suite.chosen([])
    assert suite.chosen(["kind", "lease"]) == ["lease", "kind"]


def test_without_a_farm_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "none"))
    run = suite.run(["kind"], rounds=1, quick=True, say=lambda _: None)
    assert "no farm is up" in run.unstaged["kind"]


def test_the_committed_page_is_the_committed_json_s():
    source = Path(__file__).parents[3] / "docs" / "performance-kind.json"
    assert source.with_suffix(".md").read_text() == docs.text(load(source), source.name)
