from dataclasses import replace

import pytest

from farmctl.errors import StageError
from farmctl.images.engines import Engine
from farmctl.testbeds.kind.cluster import preflight
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.preflight import Readings

SHAPE = Shape(node_image="docker.io/kindest/node:v1.34.4")
GOOD = Readings(
    engine="podman",
    unified=True,
    runc=True,
    instances_free=500,
    instances_limit=512,
    watches_limit=524288,
    disk_free_gib=100,
    modules=True,
    descriptors=1 << 20,
)


def found(readings, shape=SHAPE, *, building=False):
    return list(preflight.lacks(readings, shape, building=building))


def test_good_machine_lacks_nothing():
    assert found(GOOD, building=True) == []


@pytest.mark.parametrize(
    ("change", "what", "mend"),
    [
        ({"unified": False, "runc": False}, "crun", "apt-get install -y runc"),
        (
            {"instances_free": 20, "instances_limit": 128},
            "inotify instances: 20 of 128",
            "max_user_instances",
        ),
        ({"watches_limit": 8192}, "inotify watches", "max_user_watches"),
        ({"disk_free_gib": 2}, "disk: 2.0 GiB free", "prune"),
        ({"modules": False}, "/lib/modules", "mkdir -p /lib/modules"),
        ({"descriptors": 1024}, "open files", "ulimit -n"),
        ({"taken_ports": (9222,)}, "port 9222 is taken", "--door"),
    ],
)
def test_each_lack_has_its_remedy(change, what, mend):
    ((said, remedy),) = found(replace(GOOD, **change))
    assert what in said
    assert mend in remedy


def test_cgroup_v1_is_no_matter_with_docker_or_runc():
    assert found(replace(GOOD, unified=False)) == []
    assert found(replace(GOOD, unified=False, runc=False, engine="docker")) == []


def test_needs_grow_with_nodes_and_with_building():
    small = replace(
        GOOD, instances_free=preflight.INSTANCES_CONTROL_PLANE, disk_free_gib=preflight.DISK_A_NODE_GIB
    )
    one_node = Shape(node_image="x", workers=0)
    assert found(small, one_node) == []
    assert len(found(small)) == 2
    assert len(found(small, one_node, building=True)) == 1


def test_system_that_does_not_say_is_believed():
    assert found(replace(GOOD, instances_free=None, watches_limit=None)) == []


def test_all_lacks_are_told_at_once_with_exit_code_3(monkeypatch):
    bad = replace(GOOD, modules=False, descriptors=1024, taken_ports=(9222, 9223))
    monkeypatch.setattr(preflight, "read", lambda *_: bad)
    with pytest.raises(StageError) as caught:
        preflight.check(None, SHAPE, building=False)
    assert caught.value.exit_code == 3
    text = str(caught.value)
    assert all(word in text for word in ("/lib/modules", "open files", "9222", "9223"))
    assert text.count("mend:") == 4


def test_own_readings_can_be_taken(monkeypatch):
    monkeypatch.setattr(preflight, "_graph_root", lambda _: preflight.Path("/"))
    shape = Shape(node_image="x", door_host="127.0.0.77", door_port=39222, admin_port=39223)
    seen = preflight.read(Engine("podman", "5.4", unified=False), shape)
    assert seen.taken_ports == ()
    assert seen.disk_free_gib > 0
    assert seen.unified is False


def test_limits_of_this_machine_say_nothing_of_a_virtual_ones_nodes(monkeypatch):
    monkeypatch.setattr(preflight, "_graph_root", lambda _: preflight.Path("/"))
    monkeypatch.setattr(preflight, "_sysctl", lambda _: 8)
    monkeypatch.setattr(preflight.shutil, "which", lambda _: None)
    shape = Shape(node_image="x", door_host="127.0.0.77", door_port=39222, admin_port=39223)
    seen = replace(
        preflight.read(Engine("podman", "5.4", unified=False, elsewhere=True), shape),
        disk_free_gib=100,
        descriptors=1 << 20,
    )
    assert found(seen, shape) == []
