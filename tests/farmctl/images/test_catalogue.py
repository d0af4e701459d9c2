import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from farmctl.images import base, catalogue, farm, node
from farmctl.images.gobuild import cache_folder, kept_at


def test_the_checkouts_own_catalogue_is_whole():
    found = catalogue.read()
    assert set(found.images) == {"base", "browser", "proxy", "node"}
    assert farm.REPOSITORY.format(image="browser") == found.images["browser"].name
    assert farm.REPOSITORY.format(image="proxy") == found.images["proxy"].name
    for image in (*found.images.values(), *found.preloaded.values()):
        assert (
            image.built == "debootstrap"
            or (catalogue.ROOT / "images" / image.built / "Containerfile").exists()
        )
    for program in set(found.preloaded) - {"pause"}:
        assert found.providing(program)  # each program of the control plane has something that builds it
    for program in (*node.ON_NODE, *node.KUBE_ON_NODE):
        assert found.providing(program)


def test_versions_agree():
    found = catalogue.read()
    assert found.providing("kubelet").version == found.versions["kubernetes"]
    assert found.providing("kind").version == found.versions["kind"]
    assert (
        found.preloads()["kube-apiserver"] == f"registry.k8s.io/kube-apiserver:{found.versions['kubernetes']}"
    )
    # Staging modules of Kubernetes 1.x.y are published as 0.x.y.
    assert found.providing("kubelet").staging == "v0." + found.versions["kubernetes"].partition(".")[2]


def test_pulled_node_image_is_pinned_and_of_the_same_minor():
    found = catalogue.read()
    name, _, digest = found.images["node"].pulled.partition("@sha256:")
    assert len(digest) == 64
    assert name.rpartition(":")[2].split(".")[:2] == found.versions["kubernetes"].split(".")[:2]


def test_further_node_images_are_pinned_and_within_kubectls_skew():
    found = catalogue.read()
    for minor, image in found.images["node"].further.items():
        name, _, digest = image.partition("@sha256:")
        assert len(digest) == 64
        assert name.rpartition(":v")[2].rpartition(".")[0] == minor
        assert abs(int(minor.split(".")[1]) - int(found.minor.split(".")[1])) == 1


def test_kept_programs_stand_apart_by_version(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    entry = catalogue.read().providing("kubectl")
    assert kept_at(entry, "kubectl") == (
        tmp_path / "farmctl" / "bin" / f"k8s.io_kubernetes@{entry.version}" / "kubectl"
    )


def test_unknown_program():
    with pytest.raises(KeyError):
        catalogue.read().providing("helm")


def test_recipes_and_manifests_are_in_the_wheel(tmp_path):
    """Installed, farmctl has no checkout: what it reads comes with its code."""
    uv = shutil.which("uv") or str(cache_folder() / "uv/bin/uv")  # where scripts/setup puts it
    checkout = Path(__file__).resolve().parents[3]
    subprocess.run(
        [uv, "build", "--quiet", "--out-dir", str(tmp_path)],  # the wheel from the source distribution
        cwd=checkout, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = tmp_path.glob("*.whl")
    listed = set(zipfile.ZipFile(wheel).namelist())
    here = {
        f"farmctl/data/{path.relative_to(catalogue.ROOT)}"
        for path in catalogue.ROOT.rglob("*")
        if path.is_file()
    }
    assert "farmctl/data/images/catalogue.toml" in here
    assert {name for name in listed if name.startswith("farmctl/data/") and not name.endswith("/")} == here


def test_node_tag_follows_recipes_and_versions(monkeypatch, tmp_path):
    found = catalogue.read()
    tag = node.tag(found)
    assert tag.startswith(f"docker.io/kindest/node:{found.versions['kubernetes']}-farm-")
    assert node.tag(found) == tag
    changed = tmp_path / "catalogue.toml"
    changed.write_text(catalogue.PATH.read_text().replace('version = "v3.6.5"', 'version = "v3.6.6"'))
    assert node.tag(catalogue.read(changed)) != tag


def test_every_tag_follows_the_base_and_the_base_is_one_digest(monkeypatch, tmp_path):
    pulled = catalogue.read().images["base"].pulled
    assert re.fullmatch(r"docker\.io/library/debian:bookworm-slim@sha256:[0-9a-f]{64}", pulled)
    before = [node.tag(catalogue.read()), *map(farm.tag_of, farm.PARTS)]
    changed = tmp_path / "catalogue.toml"
    changed.write_text(catalogue.PATH.read_text().replace(pulled, f"{pulled[:-1]}x"))
    read = catalogue.read
    monkeypatch.setattr(catalogue, "read", lambda: read(changed))
    after = [node.tag(catalogue.read()), *map(farm.tag_of, farm.PARTS)]
    assert not set(before) & set(after)
    monkeypatch.undo()
    monkeypatch.setattr(base, "EXCLUDED", (*base.EXCLUDED, "usr/share/zoneinfo"))  # what is made, not pulled
    made = [node.tag(catalogue.read()), *map(farm.tag_of, farm.PARTS)]
    assert not set(before) & set(made)


def test_the_base_is_pulled_by_its_digest_and_stands_under_the_name_that_recipes_use():
    did = []

    class Engine:
        def has_image(self, _):
            return False

        def run(self, *words):
            did.append(words)

    base.ensure(Engine(), print, pull=True)
    digest = catalogue.read().images["base"].pulled.partition("@")[2]
    by_digest = f"docker.io/library/debian@{digest}"
    assert did == [("pull", by_digest), ("tag", by_digest, base.NAME)]
