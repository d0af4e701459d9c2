import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from farmctl.errors import StageError
from farmctl.images import base, catalogue, farm
from farmctl.images.catalogue import ROOT
from farmctl.images.gobuild import cache_folder

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture
def context(tmp_path):
    farm.lay("proxy", tmp_path)
    return tmp_path


def test_context_holds_our_code_and_pinned_requirements(context):
    assert (context / "Containerfile").exists()
    assert (context / "src/farmproxy/__main__.py").exists()
    assert (context / "src/farmwire").is_dir()
    assert not list(context.rglob("__pycache__"))


@pytest.mark.parametrize("image", sorted(farm.PARTS))
def test_what_a_recipe_says_in_python_is_true_of_the_code_that_it_copies(image, tmp_path):
    farm.lay(image, tmp_path)
    recipe = (tmp_path / "Containerfile").read_text()
    said = [("-c", code) for code in re.findall(r"python -c '(.+?)'", recipe)]
    said += [("-m", module, "--help") for module in re.findall(r'"-m", "(\w+)"', recipe)]
    assert said
    for words in said:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.parametrize(("image", "distribution"), [("browser", "farm-agent"), ("proxy", "farm-proxy")])
def test_what_an_image_installs_is_the_lock_file_with_hashes(image, distribution):
    """An installed farmctl has no uv.lock: what it says for the image ships with the recipe."""
    uv = shutil.which("uv") or str(cache_folder() / "uv/bin/uv")  # where scripts/setup puts it
    wanted = subprocess.run(
        [uv, "export", "--package", distribution, "--frozen", "--no-dev", "--no-emit-workspace", "--no-header",
         "--no-annotate"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    path = ROOT / "images" / image / "requirements.txt"
    if os.environ.get("FARMCTL_WRITE_DOCS"):
        path.write_text(wanted)
    assert path.read_text() == wanted, f"{path} is stale: FARMCTL_WRITE_DOCS=1 make test"
    assert "--hash=sha256:" in wanted


@pytest.mark.parametrize("image", sorted(farm.PARTS))
def test_an_image_is_built_from_what_is_installed_not_from_a_checkout(image, tmp_path, monkeypatch):
    """The same code in another place is the same image; that place is all that is looked at."""
    for package in ("farmagent", "farmproxy", "farmwire"):
        shutil.copytree(farm.installed(package), tmp_path / package)
        (tmp_path / package / "compiled.pyc").write_bytes(b"by whoever installed it")
    here = farm.tag_of(image)
    monkeypatch.setattr(farm, "installed", lambda package: tmp_path / package)
    assert farm.tag_of(image) == here
    (tmp_path / "farmwire/__init__.py").write_text("changed")
    assert farm.tag_of(image) != here


def test_digest_follows_bytes_and_names_only(context):
    before = farm.digest(context)
    assert len(before) == 12
    (context / "Containerfile").touch()
    (context / farm.CERTIFICATES).write_bytes(b"whom this host trusts")
    assert farm.digest(context) == before
    (context / "src/farmproxy/__main__.py").write_text("changed")
    changed = farm.digest(context)
    assert changed != before
    (context / "src/farmproxy/__main__.py").rename(context / "src/farmproxy/main.py")
    assert farm.digest(context) not in (before, changed)


def test_two_checkouts_of_the_same_have_one_tag(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        farm.lay("browser", tmp_path / folder)
    assert farm.digest(tmp_path / "one") == farm.digest(tmp_path / "two")


@pytest.mark.parametrize("setting", ["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_builder_trusts_whom_the_host_trusts(monkeypatch, tmp_path, setting):
    for each in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(each, raising=False)
    assert farm.trusted() == b""
    (tmp_path / "ca.pem").write_bytes(b"ca")
    monkeypatch.setenv(setting, str(tmp_path / "ca.pem"))
    assert farm.trusted() == b"ca"


class Engine:
    """Pulls and builds in no time; ``away``: no registry answers."""

    def __init__(self, *, away=False):
        self.away, self.did = away, []

    def has_image(self, tag):
        return tag == base.NAME

    def run(self, *words):
        self.did.append(words)
        if self.away and words[0] == "pull":
            raise StageError("`docker pull …` failed:\nconnection refused")

    def build(self, _context, tag):
        self.did.append(("build", tag))


@pytest.fixture
def release(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    content = farm.tag_of("proxy").rpartition(":")[2]
    found = catalogue.read()

    def make(content=content):
        image = replace(found.images["proxy"], released=f"reg.example/team/farm-proxy:{content}@sha256:1234")
        made = replace(found, images={**found.images, "proxy": image})
        monkeypatch.setattr(catalogue, "read", lambda: made)
        return farm.tag_of("proxy")

    return make


def test_the_release_s_image_is_pulled_where_it_is_of_this_content(release):
    tag, engine = release(), Engine()
    assert farm.ensure(engine, "proxy", print, pull=True) == tag
    by_digest = "reg.example/team/farm-proxy@sha256:1234"
    assert engine.did == [("pull", by_digest), ("tag", by_digest, tag)]
    assert farm.names()["proxy"].endswith("@sha256:1234")


@pytest.mark.parametrize("case", ["not asked for", "other content", "out of reach"])
def test_else_it_is_built(release, case):
    tag = release("000000000000") if case == "other content" else release()
    engine, said = Engine(away=case == "out of reach"), []
    assert farm.ensure(engine, "proxy", said.append, pull=case != "not asked for") == tag
    assert engine.did[-1] == ("build", tag)
    assert any(words[0] == "pull" for words in engine.did) is (case == "out of reach")
    assert any("built instead, because connection refused" in line for line in said) is (
        case == "out of reach"
    )
    if case == "other content":
        assert farm.names()["proxy"] == tag
