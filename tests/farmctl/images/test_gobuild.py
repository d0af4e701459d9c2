"""What a build keeps and what it leaves, with a Go that only writes down how it was called."""

import os

import pytest

from farmctl.errors import StageError
from farmctl.images import catalogue, gobuild, listing
from farmctl.images.catalogue import GoBinaries

FAKE_GO = """#!/bin/sh
mkdir -p "$GOCACHE" "$GOMODCACHE"
echo "$1 $GOFLAGS" >> "$CALLS"
[ "$1" = build ] || exit 0
for word; do case $last in -o) out=$word;; esac; last=$word; done
case $word in */broken) echo 'undefined: x' >&2; exit 1;; esac
echo built > "$out"
"""
ENTRY = GoBinaries(
    ["one", "two"], "example.org/tool", "v1.2.3", ["example.org/tool/one", "example.org/tool/two"]
)


@pytest.fixture
def calls(tmp_path, monkeypatch):
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOFLAGS", "-p=1")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_a_program_is_built_once_and_its_caches_can_be_dropped(calls):
    assert set(gobuild.build(ENTRY, print)) == {"one", "two"}
    assert calls.read_text().split("\n")[:3] == [
        f"{verb} -p=1 -modcacherw" for verb in ("get", "build", "build")
    ]
    assert sorted(path.name for path in gobuild.go_caches().iterdir()) == ["build", "modules"]
    gobuild.drop_go_caches()
    assert not gobuild.go_caches().exists()
    assert gobuild.build(ENTRY, print) == {}  # kept, so that nothing is called
    assert gobuild.kept_at(ENTRY, "two").read_text() == "built\n"


def test_what_was_built_before_a_failure_is_kept(calls):
    broken = GoBinaries(
        ["one", "broken"], ENTRY.module, ENTRY.version, ["example.org/tool/one", "example.org/broken"]
    )
    with pytest.raises(StageError, match="undefined: x"):
        gobuild.build(broken, print)
    assert gobuild.kept_at(broken, "one").exists()
    assert not gobuild.kept_at(broken, "broken").exists()
    assert gobuild.go_caches().exists()  # the next run goes on from there


def test_programs_of_other_versions_are_stale(calls):
    found = catalogue.read()
    now = gobuild.kept_at(found.providing("kubectl"), "kubectl").parent
    old = now.with_name("k8s.io_kubernetes@v1.20.0")
    for folder in (now, old):
        folder.mkdir(parents=True)
    assert listing.stale_programs(found) == [old]
