import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind.cluster import waiting
from farmctl.testbeds.kind.install import rollout_wait
from farmctl.testbeds.kind.install.rolling import unavailable
from farmctl.testbeds.kind.install.rollout_wait import HASH, picture

REVISION = "deployment.kubernetes.io/revision"


def deployment(name, replicas=2, *, revision="1", observed=1, generation=1, ready=None, updated=None):
    count = replicas if ready is None else ready
    return {
        "kind": "Deployment",
        "metadata": {
            "name": name, "uid": f"uid-{name}", "generation": generation, "annotations": {REVISION: revision},
        },
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": observed,
            "readyReplicas": count,
            "updatedReplicas": replicas if updated is None else updated,
        },
    }  # fmt: skip


def revision(number, owner="uid-browsers"):
    return {
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"browsers-{number}",
            "ownerReferences": [{"uid": owner}],
            "annotations": {REVISION: number},
            "labels": {HASH: f"hash{number}"},
        },
    }


def pod(uid, *, ready=True, rev="1", **more):
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"browsers-{uid}",
            "uid": uid,
            "labels": {"app.kubernetes.io/name": "browser", HASH: f"hash{rev}"},
            **more.pop("metadata", {}),
        },
        "spec": {"nodeName": "farm-worker"},
        "status": {"conditions": [condition], **more},
    }


def farm(*pods, browsers=None, proxy=None, sets=("1",)):
    return [
        browsers or deployment("browsers"),
        proxy or deployment("proxy", 1),
        *(revision(number) for number in sets),
        *pods,
    ]


def test_ready_pods_serve():
    seen = picture(farm(pod("a"), pod("b")), set())
    assert seen.served
    assert str(seen) == "pods: 2 of 2"


def test_farm_in_full_use_is_no_failed_rollout():
    there = farm(pod("a", ready=False), pod("b", ready=False), browsers=deployment("browsers", ready=0))
    assert picture(there, {"a", "b"}).served
    assert not picture(there, {"a"}).served


def test_rollout_is_over_when_no_old_pod_takes_callers():
    new = deployment("browsers", revision="2")
    mixed = farm(pod("a"), pod("b", ready=False, rev="2"), browsers=new, sets=("1", "2"))
    seen = picture(mixed, {"b"})
    assert (seen.new, seen.fine, seen.old) == (1, 1, 1)
    assert not seen.served
    assert "1 of the old version" in str(seen)
    # The old one finishes its session by itself: nobody waits for that.
    ending = pod("a", metadata={"deletionTimestamp": "2026-11-30T10:00:00Z", "labels": {HASH: "hash1"}})
    there = farm(ending, pod("b", ready=False, rev="2"), pod("c", rev="2"), browsers=new, sets=("1", "2"))
    assert picture(there, {"b"}).served


def test_what_the_controllers_have_not_seen_is_not_settled():
    stale = deployment("browsers", generation=2, observed=1)
    assert not picture(farm(pod("a"), pod("b"), browsers=stale), set()).served
    starting = deployment("proxy", 1, ready=0)
    seen = picture(farm(pod("a"), pod("b"), proxy=starting), set())
    assert not seen.served
    assert "proxy starting" in str(seen)


def test_old_pods_in_use_do_not_pass_for_new_ones_before_the_controller_has_acted():
    """Seen on a quiet machine: the first new pod stood beside a Deployment of the revision before, and all went."""
    stale = deployment("browsers", generation=2, observed=1)
    old = [pod(uid, ready=False) for uid in ("a", "b")]
    seen = picture(farm(*old, pod("c", ready=False, rev="2"), browsers=stale, sets=("1", "2")), {"a", "b"})
    assert (seen.new, seen.old) == (0, 3)
    assert unavailable(wanted=2, new=seen.new, fine=seen.fine, old=seen.old) is None


def test_pods_that_go_do_not_count():
    going = pod("b", metadata={"deletionTimestamp": "2026-11-30T10:00:00Z"})
    assert picture(farm(pod("a"), going), set()).fine == 1


def test_nothing_applied_yet():
    seen = picture([], set())
    assert not seen.served
    assert seen.trouble


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}}
                ]
            },
            "browsers-a on farm-worker: ErrImagePull: no such host",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, None),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
                ]
            },
            "browsers-a cannot be placed: 0/3 nodes are available",
        ),
        ({"reason": "Evicted", "message": "low on ephemeral-storage"}, "browsers-a: Evicted: low on"),
    ],
)
def test_trouble_is_told_in_the_clusters_words(status, said):
    told = rollout_wait.troubles(pod("a", ready=False, **status))
    assert (told == []) if said is None else (len(told) == 1 and told[0].startswith(said))


def test_pods_in_use_are_read_from_the_proxys_status():
    states = {"a": "free", "b": "leased", "c": "recycling", "d": "dialling", "e": "set-aside"}
    pools = {"default": {"pods": [{"uid": uid, "state": state} for uid, state in states.items()]}}
    assert rollout_wait.in_use({"pools": pools}) == {"b", "c", "d"}
    assert rollout_wait.in_use({}) == set()


class Answers:
    """A kubectl, or a door, that gives what it was told to."""

    def __init__(self, objects=(), status=None, leases=()):
        self.objects, self.said, self.leases = list(objects), status, list(leases)

    def get(self, *words):
        return [] if words == ("nodes",) else self.objects

    def status(self):
        if self.said is None:
            raise StageError("no answer")
        return self.said

    def lease(self):
        return self.leases.pop(0)


def test_waiting_in_vain_tells_the_cause(monkeypatch):
    monkeypatch.setattr(waiting.time, "sleep", lambda _: None)
    broken = pod(
        "a",
        ready=False,
        containerStatuses=[
            {
                "name": "browser",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}},
            }
        ],
    )
    said = []
    with pytest.raises(StageError, match="ImagePullBackOff") as caught:
        rollout_wait.wait_until_served(
            Answers(farm(broken, pod("b"))), "farm", Answers(), timeout_s=0, progress=said.append
        )
    assert caught.value.exit_code == 3
    assert said == ["pods: 1 of 2"]


def test_pressed_node_is_the_cause_not_the_farm():
    class Pressed(Answers):
        def get(self, *_):
            condition = {"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"}
            return [{"metadata": {"name": "farm-worker"}, "status": {"conditions": [condition]}}]

    (line,) = rollout_wait.pressed(Pressed())
    assert line.startswith("node farm-worker: DiskPressure")


def test_door_is_asked_until_it_leases(monkeypatch):
    monkeypatch.setattr(waiting.time, "sleep", lambda _: None)
    idle, used = {"pools": {}}, {"pools": {"default": {"pods": [{"uid": "a", "state": "leased"}]}}}
    assert (
        rollout_wait.wait_for_lease(Answers(status=idle, leases=["no-free-pod", "leased"]), timeout_s=60)
        == "leased"
    )
    assert (
        rollout_wait.wait_for_lease(Answers(status=used, leases=["no-free-pod"]), timeout_s=60)
        == "no-free-pod"
    )
    with pytest.raises(StageError, match="no free pod although none is in use"):
        rollout_wait.wait_for_lease(Answers(status=idle, leases=["no-free-pod"]), timeout_s=0)


def test_a_cluster_that_takes_no_pod_is_told_in_its_own_words():
    """No pod is there then to say why: a quota, a pod-security level, an admission webhook."""
    browsers = deployment("browsers", updated=0, ready=0)
    message = (
        'pods "browsers-1-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    )
    browsers["status"]["conditions"] = [{"type": "ReplicaFailure", "status": "True", "message": message}]
    seen = picture(farm(browsers=browsers), set())
    assert not seen.served
    assert any(message in line for line in seen.trouble)
