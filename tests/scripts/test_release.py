"""What a release is made of: four distributions of one version that ask for each other at that version."""

import importlib.util
import platform
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from farmctl.errors import StageError
from farmctl.images import catalogue, farm
from farmctl.testbeds.kind import existing

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = {"farmctl": ".", "farmproxy": "proxy", "farmagent": "agent", "farmwire": "wire"}


def project(folder: str) -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(("package", "folder"), PARTS.items())
def test_the_parts_are_of_one_version_and_ask_for_it(package, folder):
    """A farmctl beside another release's agent would build other images than it was tested with."""
    version = project(".")["version"]
    assert project(folder)["version"] == import_module(package).__version__ == version
    ours = [each for each in project(folder)["dependencies"] if each.startswith("farm")]
    assert all(re.fullmatch(rf"farm-\w+=={re.escape(version)}", each) for each in ours), ours


class Docker:
    """A registry that takes everything; its digests say what was joined."""

    def __init__(self):
        self.calls = []

    def __call__(self, *words):
        self.calls.append(words)
        return f"sha256:{words[3].rpartition(':')[2].ljust(64, '0')}" if "inspect" in words else ""


@pytest.fixture
def release(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("release_script", ROOT / "scripts/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.docker = Docker()
    path = tmp_path / "catalogue.toml"
    path.write_text(catalogue.PATH.read_text())
    monkeypatch.setattr(catalogue, "PATH", path)
    return module


def test_digests_go_into_the_catalogue_and_fit_what_is_installed(release, monkeypatch, capsys):
    before = catalogue.read()
    for _ in range(2):  # a release that is made again
        release.main(["catalogue", "reg.example/team", "amd64", "arm64"])
        after = catalogue.read(catalogue.PATH)
    content = farm.tag_of("browser").rpartition(":")[2]
    where = f"reg.example/team/farm-browser:{content}@sha256:{content.ljust(64, '0')}"
    assert after.images["browser"].released == where
    assert {name: replace(each, released="") for name, each in after.images.items()} == before.images
    assert (after.preloaded, after.binaries) == (before.preloaded, before.binaries)
    create = next(words for words in release.docker.calls if "create" in words)
    assert create[-2:] == tuple(
        f"reg.example/team/farm-browser:{content}-{arch}" for arch in ("amd64", "arm64")
    )
    assert capsys.readouterr().out.count("released = ") == 4
    read = catalogue.read
    monkeypatch.setattr(catalogue, "read", lambda: read(catalogue.PATH))
    assert farm.names()["browser"] == where
    assert farm.names("own.example")["browser"] == f"own.example/farm-browser:{content}"


def test_an_image_is_pushed_with_sbom_and_provenance_for_its_own_architecture(release):
    release.main(["image", "proxy", "reg.example/team"])
    [words] = release.docker.calls
    assert {"--push", "--sbom=true", "--provenance=mode=max"} <= set(words)
    arch = release.ARCHITECTURES[platform.machine()]
    tag = words[words.index("--tag") + 1]
    assert tag == f"reg.example/team/{farm.tag_of('proxy').rpartition('/')[2]}-{arch}"
    assert words[words.index("--platform") + 1] == f"linux/{arch}"
    # Not whatever the recipe's tag means on that day.
    context = words[words.index("--build-context") + 1]
    assert context == f"debian:bookworm-slim=docker-image://{catalogue.read().images['base'].pulled}"


def test_a_tag_is_released_only_with_least_rights():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert workflow["permissions"] == {}
    rights = {name: set(job["permissions"]) for name, job in workflow["jobs"].items()}
    assert rights["publish"] == {"id-token"}
    assert [name for name, those in rights.items() if "packages" in those] == ["image", "wheels"]
    uses = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each) for each in uses)


def test_an_existing_cluster_pulls_the_release_s_images_by_digest(release, monkeypatch, capsys):
    """Without --image-prefix: what nobody pushed anywhere was all that a farmctl of before could offer."""
    elsewhere = existing.WantedInstall(context="theirs")
    with pytest.raises(StageError, match="has to pull the farm's images from somewhere"):
        existing.ensure_images(elsewhere, existing.image_names(elsewhere), catalogue.read(), print)
    release.main(["catalogue", "reg.example/team", "amd64"])
    read = catalogue.read
    monkeypatch.setattr(catalogue, "read", lambda: read(catalogue.PATH))
    names = existing.image_names(elsewhere)
    assert all("@sha256:" in name for name in names.values())
    existing.ensure_images(elsewhere, names, catalogue.read(), print)
    of_kind = existing.image_names(existing.WantedInstall(context="kind-mine"))
    assert of_kind == {image: farm.tag_of(image) for image in farm.PARTS}  # loaded, not pulled
