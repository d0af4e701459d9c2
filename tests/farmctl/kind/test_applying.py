import json

import pytest
import yaml

from farmctl.errors import StageError
from farmctl.testbeds.kind.cluster.kubectl import objects
from farmctl.testbeds.kind.install import applying
from farmctl.testbeds.kind.install.manifests import OURS


def item(kind, name, *, labels=OURS, namespace="farm", **meta):
    made = {"kind": kind, "metadata": {"name": name, "labels": dict(labels), **meta}}
    if namespace:
        made["metadata"]["namespace"] = namespace
    return made


class ScriptedKubectl:
    """A cluster with these objects; remembers what it was told to do."""

    def __init__(self, *there):
        self.there, self.done = list(there), []

    def __call__(self, *words, stdin="", **_):
        self.done.append(words)
        return json.dumps({"kind": "List", "items": self.there}) if words[0] == "get" else ""

    def get(self, *words):
        if words[0] == "namespace":
            return [each for each in self.there if each["kind"] == "Namespace"]
        selected = "-l" in words
        return [
            each
            for each in self.there
            if each["kind"] != "Namespace" and (not selected or each["metadata"]["labels"] == OURS)
        ]

    def deleted(self):
        return [next(word for word in words if "/" in word) for words in self.done if words[0] == "delete"]


def test_foreign_object_of_the_same_name_is_refused():
    kubectl = ScriptedKubectl(
        item("Deployment", "proxy", labels={"app": "theirs"}), item("Service", "browsers")
    )
    with pytest.raises(StageError, match="Deployment proxy in namespace farm is there already") as caught:
        applying.refuse_foreign(kubectl, "…")
    assert "Service" not in str(caught.value)
    assert [words[0] for words in kubectl.done] == ["get"]  # nothing was changed
    applying.refuse_foreign(ScriptedKubectl(item("Service", "browsers")), "…")


def test_fields_of_others_are_taken_over_only_in_a_cluster_of_our_own():
    kubectl = ScriptedKubectl()
    applying.apply(kubectl, "…", force=True)
    applying.apply(kubectl, "…", force=False)
    forced, polite = kubectl.done
    assert "--force-conflicts" in forced
    assert "--force-conflicts" not in polite
    assert {"--server-side", "--field-manager=farmctl"} <= set(polite)


def test_prune_removes_what_the_set_no_longer_holds():
    kubectl = ScriptedKubectl(
        item("Secret", "agent-key-new"),
        item("Secret", "agent-key-old"),
        item("ConfigMap", "theirs", labels={}),
        item("ReplicaSet", "browsers-1", ownerReferences=[{"uid": "x"}]),
    )
    wanted = yaml.safe_dump_all([item("Secret", "agent-key-new")])
    assert applying.prune(kubectl, "farm", wanted) == ["secret/agent-key-old"]
    assert kubectl.deleted() == ["secret/agent-key-old"]


def test_uninstall_leaves_a_namespace_that_others_use():
    kubectl = ScriptedKubectl(
        item("Namespace", "farm", namespace=""),
        item("Deployment", "proxy"),
        item("ConfigMap", "theirs", labels={}),
        item("ConfigMap", "kube-root-ca.crt", labels={}),
        item("ServiceAccount", "default", labels={}),
    )
    assert applying.left_by_others(kubectl, "farm") == ["ConfigMap/theirs"]
    assert applying.uninstall(kubectl, "farm") == ["deployment/proxy"]
    kubectl.there = [each for each in kubectl.there if each["metadata"]["name"] != "theirs"]
    assert "namespace/farm" in applying.uninstall(kubectl, "farm")


def test_uninstall_leaves_a_namespace_that_was_there_before():
    kubectl = ScriptedKubectl(item("Namespace", "farm", namespace="", labels={}), item("Deployment", "proxy"))
    assert applying.uninstall(kubectl, "farm") == ["deployment/proxy"]


def test_uninstall_of_nothing_is_fine():
    assert applying.uninstall(ScriptedKubectl(), "farm") == []


@pytest.mark.parametrize(
    ("printed", "names"),
    [
        ("", []),
        ('{"kind": "List", "items": [{"a": 1}, {"a": 2}]}', [1, 2]),
        ('{"a": 1}', [1]),
        ('{"a": 1}\n{"a": 2}\n', [1, 2]),  # `create -o json` of several
    ],
)
def test_objects_are_read_however_they_are_printed(printed, names):
    assert [each["a"] for each in objects(printed)] == names
