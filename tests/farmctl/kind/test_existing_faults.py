"""What goes wrong while a farm is put into somebody else's cluster: message, remedy, exit code 3, nothing half made."""

from pathlib import Path

import pytest

from farmctl import cli
from farmctl.errors import StageError
from farmctl.testbeds.kind import existing
from farmctl.testbeds.kind.cluster import programs
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.install import applying, evidence, rollout_wait


class Kubectl:
    """kubectl that fails where the test says, in the cluster's words."""

    kubeconfig, context, program = "/k", "theirs", Path("kubectl")

    def __init__(self, **problems):
        self.problems, self.done = problems, []

    def __call__(self, *words, **_):
        self.done.append(words)
        if problem := self.problems.get(words[0]):
            raise StageError(f"`kubectl {words[0]} …` failed:\n{problem}")
        return f"{' '.join(words)}\n"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "Error in configuration: context was not found for specified context: theirs",
            "config get-contexts",
        ),
        ("error: stat /k: no such file or directory", "config get-contexts"),
        ("Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout", "cluster-info"),
        ("error: You must be logged in to the server (Unauthorized)", "may you log in"),
    ],
)
def test_no_way_into_the_cluster(said, remedy):
    with pytest.raises(StageError, match="no way into the cluster of context 'theirs'") as caught:
        existing.refuse_missing_rights(Kubectl(create=said), "farm")
    assert said in str(caught.value)
    assert remedy in caught.value.hint
    assert "--kubeconfig /k" in caught.value.hint
    assert caught.value.exit_code == 3


@pytest.fixture
def folder(tmp_path):
    made = KindFolder(tmp_path / "kind")
    made.write(Installed(phase="installing", context="theirs"))
    return made


@pytest.fixture
def taken_out(monkeypatch):
    namespaces = []

    def uninstall(_kubectl, namespace):
        namespaces.append(namespace)
        return ["service/proxy"]

    monkeypatch.setattr(applying, "uninstall", uninstall)
    monkeypatch.setattr(applying, "prune", lambda *_: [])
    return namespaces


QUOTA = 'deployments.apps "browsers" is forbidden: exceeded quota: compute'


def test_first_install_that_is_taken_in_part_is_taken_out_again(folder, taken_out):
    there = folder.read()
    with pytest.raises(StageError, match="exceeded quota") as caught:
        existing.put_in(Kubectl(apply=QUOTA), there, folder, "", print, first=True)
    assert taken_out == ["farm"]
    assert "taken out again: service/proxy" in str(caught.value)
    assert caught.value.hint
    assert not folder.path.exists()


def test_farm_that_was_there_before_is_not_taken_out_by_a_failed_change(folder, taken_out):
    with pytest.raises(StageError, match="exceeded quota"):
        existing.put_in(Kubectl(apply=QUOTA), folder.read(), folder, "", print, first=False)
    assert taken_out == []
    assert folder.record.exists()


def test_pods_that_never_serve_leave_what_they_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path))
    kubectl = Kubectl()
    monkeypatch.setattr(programs, "find", lambda *_: Path("kubectl"))
    monkeypatch.setattr(existing, "opened", lambda *_: kubectl)
    monkeypatch.setattr(existing, "refuse_missing_rights", lambda *_, **__: None)
    monkeypatch.setattr(existing, "looked_at", lambda *_: {})
    monkeypatch.setattr(existing, "render", lambda *_: "")
    monkeypatch.setattr(existing, "ensure_images", lambda *_: None)
    for name in ("refuse_foreign", "apply", "prune"):
        monkeypatch.setattr(applying, name, lambda *_, **__: None)

    def never(*_, **__):
        raise StageError("waited 1 s in vain\n  proxy-1 cannot be placed: 3 node(s) had untolerated taint(s)")

    monkeypatch.setattr(rollout_wait, "wait_until_served", never)
    assert cli.main(["up", "--context", "theirs", "-n", "second", "--timeout", "1"]) == 3
    said = capsys.readouterr().err
    logs = tmp_path / "kind" / "logs"
    assert "untolerated taint" in said
    assert f"see {logs}" in said
    assert "farmctl down removes all of it" in said
    assert sorted(path.name for path in logs.iterdir()) == sorted(evidence.FILES)
    assert "-n second" in (logs / "events.txt").read_text()
    assert KindFolder().read().phase == "installing"  # so that `down` knows what to remove


def test_evidence_that_the_cluster_does_not_give_hides_nothing(tmp_path):
    said = []
    evidence.export(Kubectl(logs="pods/log is forbidden"), "farm", tmp_path / "logs", said.append)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["events.txt", "pods.yaml"]
    assert "no logs.txt: pods/log is forbidden" in said
