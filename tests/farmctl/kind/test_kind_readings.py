from datetime import UTC, datetime

import pytest

from farmctl.testbeds.base import Pod
from farmctl.testbeds.kind.api import pod_status
from farmctl.testbeds.kind.cluster.containers import Container

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def raw_pod(name="browsers-1", *, ready=True, phase="Running", going=False, ip="10.244.1.4", restarts=0):
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if going:
        meta["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": "2026-01-01T00:00:55Z",
    }
    status = {
        "phase": phase,
        "conditions": [condition],
        "containerStatuses": [{"restartCount": restarts}],
    }
    if ip:
        status["podIP"] = ip
    return {"metadata": meta, "spec": {"nodeName": "farm-worker"}, "status": status}


def raw_slice(*endpoints):
    return {
        "endpoints": [{"targetRef": {"uid": uid}, "conditions": conditions} for uid, conditions in endpoints]
    }


def test_a_pod_is_read_as_the_api_tells_it():
    found = pod_status.pod(raw_pod(restarts=2), NOW)
    assert found == Pod(
        "browsers-1", "uid-browsers-1", "10.244.1.4:9222", "Running", True, 2, 60.0, "farm-worker"
    )
    assert pod_status.pod(raw_pod(ip=""), NOW).address == ""


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Running"}, "Running"),
        ({"phase": "Running", "going": True}, "Terminating"),
        ({"phase": "Failed"}, "Failed"),
        ({"phase": "Succeeded"}, "Failed"),
        ({"phase": "Succeeded", "going": True}, "Terminating"),
    ],
)
def test_phases(given, phase):
    assert pod_status.pod(raw_pod(**given), NOW).phase == phase


@pytest.mark.parametrize(
    ("pod", "endpoint", "differs_s"),
    [
        ({"ready": True}, {"ready": True}, 0.0),
        ({"ready": True}, {"ready": None}, 0.0),  # nil counts as true
        ({"ready": True}, {}, 0.0),
        ({"ready": False}, {"ready": True}, 5.0),
        ({"ready": True}, {"ready": False}, 5.0),
        ({"ready": True, "going": True}, {"ready": False}, 0.0),
    ],
)
def test_readiness_tells_since_when_pod_and_endpoint_differ(pod, endpoint, differs_s):
    [found] = pod_status.readiness([raw_pod(**pod)], [raw_slice(("uid-browsers-1", endpoint))], NOW)
    assert found.differs_s == differs_s


def test_an_endpoint_without_a_pod_is_nobodys():
    assert pod_status.ready_uids([{"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}]}]) == set()
    assert pod_status.ready_uids([{"endpoints": None}]) == set()


@pytest.mark.parametrize(
    ("containers", "phase", "restarts", "ready"),
    [
        ([("running", 0)], "Running", 0, True),
        ([("exited", 0)], "Failed", 0, False),
        ([("exited", 0), ("running", 1)], "Running", 1, False),
        ([], "Failed", 0, False),
    ],
)
def test_without_the_api_a_pods_node_tells_what_became_of_it(containers, phase, restarts, ready):
    known = pod_status.pod(raw_pod(), NOW)
    other = Container("other", "uid-other", running=True, attempt=9)
    found = [Container(f"c{n}", known.uid, state == "running", n) for state, n in containers]
    now = pod_status.by_containers(known, [other, *found])
    assert (now.phase, now.restarts, now.ready) == (phase, restarts, ready)
