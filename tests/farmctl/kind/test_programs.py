import json
import sys

import pytest

from farmctl.errors import StageError
from farmctl.images import catalogue
from farmctl.testbeds.kind.cluster import programs
from farmctl.testbeds.kind.install.manifests import Rendering, render


@pytest.mark.parametrize(
    ("name", "wanted", "found", "good"),
    [
        ("kind", "v0.33.0", "v0.33.0", True),
        ("kind", "v0.33.0", "v0.34.1", True),
        ("kind", "v0.33.0", "v0.17.0", False),  # what pytest-kind downloads
        ("kind", "v0.33.0", "", False),
        ("kubectl", "v1.34.4", "v1.33.0", True),
        ("kubectl", "v1.34.4", "v1.35.2", True),
        ("kubectl", "v1.34.4", "v1.32.4", False),
        ("kubectl", "v1.34.4", "v1.36.0", False),
        ("kubectl", "v1.34.4", "v2.34.0", False),
    ],
)
def test_version_fits(name, wanted, found, good):
    assert programs.fits(name, wanted, found) is good


def program(folder, name, says):
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("name", "says", "version"),
    [
        ("kind", "kind v0.33.0 go1.26 linux/amd64", "v0.33.0"),
        ("kubectl", "Client Version: v1.32.4-dispatcher", "v1.32.4"),
        ("kubectl", "no idea", ""),
    ],
)
def test_version_is_read_from_what_it_prints(tmp_path, name, says, version):
    assert programs.version_of(str(program(tmp_path, name, says))) == version


def test_program_on_path_is_taken_when_it_fits(tmp_path, monkeypatch):
    found = catalogue.read()
    there = program(tmp_path, "kind", f"kind {found.versions['kind']} go1.26 linux/amd64")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert programs.find("kind", found, print) == there


def test_old_program_and_no_go_is_told(tmp_path, monkeypatch):
    program(tmp_path, "kind", "kind v0.17.0 go1.19 linux/amd64")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        programs.shutil, "which", lambda name: str(tmp_path / name) if name == "kind" else None
    )
    with pytest.raises(StageError, match=r"v0\.17\.0, v0\.33\.0 is needed") as caught:
        programs.find("kind", catalogue.read(), print)
    assert "Go" in caught.value.hint


CLIENT = """case "$*" in *--client*) echo 'Client Version: {v}';; *) echo '{both}';; esac"""


def kubectl(folder, version, server="", name="kubectl"):
    both = json.dumps({"clientVersion": {"gitVersion": version}, "serverVersion": {"gitVersion": server}})
    path = folder / name
    path.write_text(f"#!/bin/sh\n{CLIENT.format(v=version, both=both)}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with nothing on PATH but what the test puts there; a Go build would end the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    there = programs.shutil.which

    def which(name):
        return there(name, path=str(tmp_path))

    monkeypatch.setattr(programs.shutil, "which", which)
    monkeypatch.setattr(programs, "build", lambda *_, **__: pytest.fail("nothing is built for this"))
    return tmp_path


@pytest.mark.parametrize("version", ["v1.29.3", "v1.34.4", "v1.40.0"])
def test_any_kubectl_serves_for_somebody_elses_cluster_and_for_rendering(bare, version):
    there = kubectl(bare, version)
    assert programs.find("kubectl", catalogue.read(), print) == there
    assert programs.renderer(catalogue.read()) == there


def test_kustomize_renders_where_there_is_no_kubectl(bare):
    with pytest.raises(StageError, match="neither kubectl nor kustomize"):
        programs.renderer(catalogue.read())
    there = bare / "kustomize"
    there.write_text("#!/bin/sh\n[ $1 = build ] && [ -f $2/kustomization.yaml ] && echo 'kind: Rendered'\n")
    there.chmod(0o755)
    assert programs.renderer(catalogue.read()) == there
    assert render(there, Rendering("existing", {"browser": "b:1", "proxy": "p:1"})) == "kind: Rendered\n"


@pytest.mark.parametrize(
    ("on_path", "image", "taken"),
    [
        ("v1.34.0", "docker.io/kindest/node:v1.34.4-farm-abc", False),
        ("v1.35.1", "docker.io/kindest/node:v1.34.4-farm-abc", False),
        ("v1.32.4", "docker.io/kindest/node:v1.34.4-farm-abc", True),
        ("v1.34.4", "docker.io/kindest/node:v1.36.1@sha256:0a", True),
        ("", "docker.io/kindest/node:v1.34.4-farm-abc", True),
    ],
)
def test_a_cluster_of_our_own_is_asked_by_a_kubectl_that_fits_it_or_its_own(bare, on_path, image, taken):
    there = kubectl(bare, on_path) if on_path else None
    own, takes = bare / "state" / "kubectl", []

    def take(target):
        takes.append(target)
        target.parent.mkdir(exist_ok=True)
        kubectl(target.parent, programs.kubernetes_of(image))

    found = programs.for_nodes(image, catalogue.read(), own, take)
    assert found == (own if taken else there)
    assert programs.for_nodes(image, catalogue.read(), own, take) == found
    assert takes == ([own] if taken else [])  # once


@pytest.mark.parametrize(
    ("client", "server", "refused"),
    [
        ("v1.32.4", "v1.33.0", False),
        ("v1.34.1", "v1.33.9-gke.100", False),
        ("v1.32.4", "v1.34.0", True),
        ("v1.36.0", "v1.34.0+k3s1", True),
        ("v1.32.4", "", False),  # a server that does not say
    ],
)
def test_the_clusters_version_is_what_kubectl_is_compared_with(bare, client, server, refused):
    program = kubectl(bare, client, server)
    if not refused:
        programs.refuse_skew(program, "", "theirs")
        return
    with pytest.raises(StageError, match=f"is {client}, the cluster is v1") as caught:
        programs.refuse_skew(program, "", "theirs")
    assert server in caught.value.hint


def test_failure_carries_the_programs_last_words():
    with pytest.raises(StageError, match="it broke"):
        programs.run([sys.executable, "-c", "import sys; sys.exit('it broke')"])


def test_program_that_does_not_end_is_told():
    with pytest.raises(StageError, match="did not end within"):
        programs.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


def test_stdin_and_stdout_are_passed():
    assert programs.run([sys.executable, "-c", "print(input()[::-1])"], stdin="abc\n") == "cba\n"
