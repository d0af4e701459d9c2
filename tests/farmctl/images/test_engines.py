"""Finding the engine, with programs that play docker and podman."""

import json

import pytest

from farmctl.errors import StageError
from farmctl.images import engines


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Put a program of this name on PATH that answers `info` so."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KIND_EXPERIMENTAL_PROVIDER", raising=False)
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    only = set()
    monkeypatch.setattr(engines.shutil, "which", lambda name: str(tmp_path / name) if name in only else None)

    def played(name, *, says=None, fails=""):
        path = tmp_path / name
        body = f"echo '{json.dumps(says)}'" if says else f"echo '{fails}' >&2; exit 1"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        only.add(name)

    return played


DOCKER, PODMAN = {"ServerVersion": "27.3.1"}, {"version": {"Version": "4.3.1"}}


def test_docker_comes_first_unless_another_is_named(play, monkeypatch):
    play("docker", says=DOCKER)
    play("podman", says=PODMAN)
    assert engines.find().name == "docker"
    monkeypatch.setenv("KIND_EXPERIMENTAL_PROVIDER", "podman")
    assert engines.find().name == "podman"


def test_podman_serves_where_docker_is_only_a_client(play):
    play("docker", fails="Cannot connect to the Docker daemon at unix:///var/run/docker.sock")
    play("podman", says=PODMAN)
    found = engines.find()
    assert (found.name, found.version) == ("podman", "4.3.1")
    assert found.env["KIND_EXPERIMENTAL_PROVIDER"] == "podman"


def test_no_engine_at_all(play):
    with pytest.raises(StageError, match="no container engine") as caught:
        engines.find()
    assert "podman" in caught.value.hint
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Cannot connect to the Docker daemon. Is it running?", "systemctl start docker"),
        ("permission denied while trying to connect to the socket", "docker group"),
    ],
)
def test_engine_that_does_not_answer_has_its_remedy(play, said, remedy):
    play("docker", fails=said)
    with pytest.raises(StageError, match="does not answer") as caught:
        engines.find()
    assert said in str(caught.value)
    assert remedy in caught.value.hint


def test_old_engine_is_told(play):
    play("docker", says={"ServerVersion": "19.03.8"})
    with pytest.raises(StageError, match=r"19\.03\.8 is too old, 20\.10"):
        engines.find()


@pytest.mark.parametrize(("unified", "set_aside"), [(False, True), (True, False)])
def test_podman_on_cgroup_v1_gets_a_file_of_its_own(play, monkeypatch, tmp_path, unified, set_aside):
    play("podman", says=PODMAN)
    monkeypatch.setattr(engines, "unified_cgroups", lambda: unified)
    conf = engines.find().env.get("CONTAINERS_CONF")
    assert (conf is not None) is set_aside
    if conf:
        assert conf.startswith(str(tmp_path))
        assert 'runtime = "runc"' in (tmp_path / "cache/farmctl/containers.conf").read_text()


def test_settings_of_ones_own_are_left_alone(play, monkeypatch):
    play("podman", says=PODMAN)
    monkeypatch.setattr(engines, "unified_cgroups", lambda: False)
    monkeypatch.setenv("CONTAINERS_CONF", "/etc/mine.conf")
    assert "CONTAINERS_CONF" not in engines.find().env


def test_failure_carries_the_engines_last_words(play):
    play("docker", says=DOCKER)
    engine = engines.find()
    play("docker", fails="no such image: x")
    with pytest.raises(StageError, match="no such image: x"):
        engine.run("save", "x")
    assert not engine.has_image("x")


@pytest.mark.parametrize(
    ("said", "reused"),
    [
        ("STEP 2/3: COPY x /x\n--> Using cache 0a1b2c\n", True),
        ("#7 [2/3] COPY x /x\n#7 CACHED\n", True),
        ("STEP 2/3: COPY x /x\n--> 0a1b2c\n", False),
    ],
)
def test_a_build_tells_whether_it_took_layers_of_an_earlier_one(play, tmp_path, said, reused):
    play("podman", says=PODMAN)
    engine = engines.find()
    (tmp_path / "podman").write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
    assert engine.build(tmp_path, "x:1") is reused
