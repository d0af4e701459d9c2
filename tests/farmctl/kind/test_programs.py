import sys

import pytest

from farmctl.errors import StageError
from farmctl.images import catalogue
from farmctl.testbeds.kind import programs


@pytest.mark.parametrize(
    ("name", "wanted", "found", "good"),
    [
        ("kind", "v0.33.0", "v0.33.0", True),
        ("kind", "v0.33.0", "v0.34.1", True),
        ("kind", "v0.33.0", "v0.17.0", False),  # field case 41
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


def test_failure_carries_the_programs_last_words():
    with pytest.raises(StageError, match="it broke"):
        programs.run([sys.executable, "-c", "import sys; sys.exit('it broke')"])


def test_program_that_does_not_end_is_told():
    with pytest.raises(StageError, match="did not end within"):
        programs.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


def test_stdin_and_stdout_are_passed():
    assert programs.run([sys.executable, "-c", "print(input()[::-1])"], stdin="abc\n") == "cba\n"
