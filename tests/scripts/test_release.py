"""What a release is made of: four distributions of one version that ask for each other at that version."""

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

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
