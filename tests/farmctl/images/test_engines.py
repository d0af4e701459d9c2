"""Finding the engine, with programs that play docker and podman."""

import json
from pathlib import Path

import pytest

from farmctl.errors import StageError
from farmctl.images import engines


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Put a program of this name on PATH that answers `info` so, and is set to the engine at ``at``."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KIND_EXPERIMENTAL_PROVIDER", raising=False)
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.delenv("CONTAINERS_CONF_OVERRIDE", raising=False)
    only = set()
    monkeypatch.setattr(engines.shutil, "which", lambda name: str(tmp_path / name) if name in only else None)

    def played(name, *, says=None, fails="", at="unix:///var/run/docker.sock"):
        path = tmp_path / name
        body = f"echo '{json.dumps(says)}'" if says else f"echo '{fails}' >&2; exit 1"
        path.write_text(f"#!/bin/sh\nif [ \"$1\" = context ]; then echo '{at}'; exit; fi\n{body}\n")
        path.chmod(0o755)
        only.add(name)

    return played


DOCKER = {"ServerVersion": "27.3.1", "CgroupVersion": "2", "ProductLicense": "Community Engine"}
PODMAN = {"host": {"cgroupVersion": "v2", "serviceIsRemote": False}, "version": {"Version": "4.3.1"}}
V1 = {**PODMAN, "host": {"cgroupVersion": "v1"}}


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


NO_ACCOUNT = {
    "the daemon is down, and info ends well": {
        "ServerVersion": "",
        "ServerErrors": ["Cannot connect to the daemon"],
    },
    "the daemon is down, and nothing says so": {"ID": ""},
    "no version": {"ServerVersion": "HEAD-4b2a"},
    "podman's own form, from a command of docker's name": PODMAN,
    "podman's service behind docker's client": {"ServerVersion": "5.4.0", "ProductLicense": "Apache-2.0"},
    "no object": ["?"],
}


@pytest.mark.parametrize("says", NO_ACCOUNT.values(), ids=NO_ACCOUNT)
def test_a_docker_that_is_down_or_is_podman_gives_its_place_to_podman(play, says):
    play("docker", says=says)
    with pytest.raises(StageError, match=r"does not answer|docker is podman") as caught:
        engines.find()
    assert caught.value.exit_code == 3
    assert caught.value.hint
    play("podman", says=PODMAN)
    assert engines.find().name == "podman"


def test_words_that_are_no_account_at_all(play, tmp_path):
    play("docker", says=DOCKER)
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Emulate Docker CLI using podman.'\n")
    with pytest.raises(StageError, match="does not answer"):
        engines.find()


def test_every_engine_that_does_not_serve_is_told_with_its_cause(play):
    play("docker", fails="Cannot connect to the Docker daemon")
    play("podman", says={**PODMAN, "version": {"Version": "3.0.1"}})
    with pytest.raises(StageError, match=r"(?s)Docker daemon.*podman 3\.0\.1 is too old") as caught:
        engines.find()
    assert "systemctl start docker" in caught.value.hint
    assert "upgrade podman" in caught.value.hint


@pytest.mark.parametrize("at", ["tcp://10.0.0.7:2376", "ssh://me@build.example", "tcp://[2001:db8::1]:2376"])
def test_an_engine_on_another_machine_is_refused_before_it_is_asked_anything(play, at):
    play("docker", fails="asked", at=at)
    with pytest.raises(StageError, match="another machine") as caught:
        engines.find()
    assert at in str(caught.value)
    assert "DOCKER_HOST" in caught.value.hint


@pytest.mark.parametrize(
    "at", ["unix:///run/user/1000/docker.sock", "npipe:////./pipe/docker_engine", "tcp://127.0.0.1:2375", ""]
)
def test_an_engine_of_this_machine_is_taken_wherever_it_listens(play, at):
    play("docker", says=DOCKER, at=at)
    assert engines.find().name == "docker"


def test_podman_on_another_machine_too(play, monkeypatch):
    play("podman", says=PODMAN)
    monkeypatch.setenv("CONTAINER_HOST", "ssh://core@127.0.0.1:53000/run/podman/podman.sock")
    assert engines.find().name == "podman"  # podman's own virtual machine
    monkeypatch.setenv("CONTAINER_HOST", "ssh://me@build.example/run/podman/podman.sock")
    with pytest.raises(StageError, match=r"build\.example"):
        engines.find()


def test_a_farms_own_engine_is_the_only_one_asked(play, monkeypatch):
    play("docker", fails="Cannot connect to the Docker daemon")
    play("podman", says=PODMAN)
    monkeypatch.setenv("KIND_EXPERIMENTAL_PROVIDER", "podman")
    with pytest.raises(StageError, match="Docker daemon"):
        engines.find("docker")
    monkeypatch.setenv("KIND_EXPERIMENTAL_PROVIDER", "nerdctl")
    with pytest.raises(StageError, match="nerdctl"):
        engines.find()


def test_a_farms_docker_is_found_again_wherever_the_client_is_set_to_meanwhile(play):
    play("docker", says=DOCKER, at="unix:///first.sock")
    first = engines.find()
    assert first.key == "docker unix:///first.sock"
    assert "DOCKER_HOST" not in first.env
    play("docker", says=DOCKER, at="ssh://me@far")
    again = engines.find(first.key)
    assert again.environment()["DOCKER_HOST"] == "unix:///first.sock"
    assert again.key == first.key
    play("podman", says=PODMAN)
    assert engines.find("podman").key == "podman"


def test_what_the_engine_says_of_its_machine_counts_not_what_this_machine_has(play):
    play("docker", says={**DOCKER, "CgroupVersion": "1", "OperatingSystem": "Docker Desktop"})
    found = engines.find()
    assert (found.unified, found.elsewhere, found.rootless) == (False, True, False)
    play("docker", says={**DOCKER, "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]})
    assert engines.find().rootless


def test_an_engine_that_hangs_is_told(play, tmp_path):
    play("docker", says=DOCKER)
    engine = engines.find()
    (tmp_path / "docker").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(StageError, match=r"did not end within 0\.2 s"):
        engine.run("ps", timeout_s=0.2)


def test_a_recipe_is_named_to_the_engine_which_looks_for_a_dockerfile_only(play, tmp_path):
    play("docker", says=DOCKER)
    engine = engines.find()
    (tmp_path / "docker").write_text('#!/bin/sh\necho "$@" > ' + f"{tmp_path}/words\n")
    engine.build(tmp_path, "x:1")
    assert f"-f {tmp_path}/Containerfile" in (tmp_path / "words").read_text()


@pytest.mark.parametrize(("says", "set_aside"), [(V1, True), (PODMAN, False)])
def test_podman_on_cgroup_v1_gets_a_file_of_its_own(play, tmp_path, says, set_aside):
    play("podman", says=says)
    conf = engines.find().env.get("CONTAINERS_CONF")
    assert (conf is not None) is set_aside
    if conf:
        assert conf.startswith(str(tmp_path))
        assert 'runtime = "runc"' in (tmp_path / "cache/farmctl/containers.conf").read_text()
    over = engines.find().env["CONTAINERS_CONF_OVERRIDE"]
    assert Path(over).read_text() == "[containers]\npids_limit = 0\n"


def test_settings_of_ones_own_are_left_alone(play, monkeypatch):
    play("podman", says=V1)
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


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ({}, None),
        ({"https_proxy": "http://p:1"}, ""),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": "a.example"}, "a.example"),
    ],
)
def test_where_a_proxy_is_set_the_nodes_are_told_that_their_loopback_goes_without(
    play, monkeypatch, tmp_path, setting, wanted
):
    for name in (*engines.PROXIES, "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    play("docker", says=DOCKER)
    env = engines.kind_environment(engines.find(), tmp_path / "kubeconfig")
    if wanted is None:
        assert "NO_PROXY" not in env
    else:
        assert env["NO_PROXY"] == env["no_proxy"]
        assert {"127.0.0.1", "localhost", "::1"} <= set(env["NO_PROXY"].split(","))
        assert wanted in env["NO_PROXY"]
