import pytest

from farmctl.errors import StageError
from farmctl.testbeds import choosing
from farmctl.testbeds.kind import up
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.nodes import Node
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.kind.up import Wanted


@pytest.fixture
def folder(tmp_path):
    return KindFolder(tmp_path / "farmctl" / "kind")


def test_record_comes_back_as_it_was(folder):
    assert folder.read() is None
    there = Installed(
        phase="up", shape=Shape(node_image="x", workers=1), addresses={"a": "10.89.0.4"}, pods=6
    )
    folder.write(there)
    assert folder.read() == there
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_record_of_another_version_is_told(folder):
    folder.path.mkdir(parents=True)
    folder.record.write_text('{"phase": "up", "colour": "blue"}')
    with pytest.raises(StageError, match="no record of this farmctl") as caught:
        folder.read()
    assert "kind delete cluster" in caught.value.hint


def test_key_is_made_once_and_private(folder):
    folder.path.mkdir(parents=True)
    key = folder.ensure_key().read_text()
    assert len(key) == 64
    assert folder.ensure_key().read_text() == key
    assert folder.agent_key.stat().st_mode & 0o777 == 0o600


def test_one_command_at_a_time(folder):
    with folder.held(), pytest.raises(StageError, match="another farmctl"), folder.held():
        pass
    with folder.held():
        pass
    assert not folder.path.parent.exists()  # nothing was made, nothing is left
    with folder.held():
        folder.write(Installed(phase="creating"))
    assert folder.record.exists()


def test_removal_leaves_nothing_but_what_is_not_ours(folder):
    folder.write(Installed(phase="up"))
    folder.remove()
    assert not folder.path.parent.exists()
    folder.write(Installed(phase="up"))
    (folder.path.parent / "other").write_text("")
    folder.remove()
    assert (folder.path.parent / "other").exists()


class Store:
    name = "docker"
    elsewhere = False

    def has_image(self, _):
        return False


@pytest.fixture
def shape_for():
    from farmctl.images import catalogue

    return lambda wanted, there=None, source="build": up.shape_for(
        wanted, there, catalogue.read(), Store(), source
    )


def test_what_is_not_asked_for_stays_as_it_is(shape_for):
    first = shape_for(Wanted(workers=0, door=("127.0.0.1", 9322), name="mine"))
    assert (first.workers, first.door, first.admin, first.name) == (
        0,
        "127.0.0.1:9322",
        "127.0.0.1:9323",
        "mine",
    )
    again = shape_for(Wanted(), Installed(phase="up", shape=first))
    assert again == first
    assert shape_for(Wanted(workers=2), Installed(phase="up", shape=first)).workers == 2


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize(("may", "elsewhere"), [(True, False), (False, False), (False, True)])
def test_nodes_are_restricted_where_their_engine_has_no_more_rights_than_we(
    shape_for, monkeypatch, engine, may, elsewhere
):
    monkeypatch.setattr(Store, "name", engine)
    monkeypatch.setattr(Store, "elsewhere", elsewhere)  # a virtual machine has rights of its own
    monkeypatch.setattr(up, "may", lambda _: may)
    assert shape_for(Wanted()).restricted is (not may and not elsewhere)


def test_cluster_keeps_its_source_unless_another_is_asked_for(shape_for):
    pulled = shape_for(Wanted(), source="registry")
    assert not pulled.own_network
    there = Installed(phase="up", shape=pulled)
    # The registry is out of reach today: no reason for another cluster.
    assert shape_for(Wanted(), there, "build") == pulled
    built = shape_for(Wanted(source="build"), there, "build")
    assert built.own_network
    assert built.node_image != pulled.node_image


def test_images_go_where_their_pods_may_be_put():
    images = {"browser": "b", "proxy": "p"}
    plane = Node("farm-control-plane", "control-plane", True, "x")
    workers = [Node("farm-worker", "worker", True, "y"), Node("farm-worker2", "worker", True, "z")]
    assert up.placed([plane, *workers], images) == {
        "b": ["farm-worker", "farm-worker2"],
        "p": ["farm-control-plane"],
    }
    assert up.placed([plane], images) == {"b": ["farm-control-plane"], "p": ["farm-control-plane"]}


def test_farm_that_is_there_is_chosen():
    assert choosing.choose("auto", "Linux", kind_is_up=True).kind == "kind"
    assert choosing.choose("auto", "Linux").kind == "local"
    with pytest.raises(StageError, match="on Kubernetes is up"):
        choosing.choose("local", "Linux", kind_is_up=True)
    with pytest.raises(StageError, match="a local farm is up"):
        choosing.choose("kind", "Linux", local_is_up=True)
