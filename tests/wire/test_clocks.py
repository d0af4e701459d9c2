"""Who reads the wall clock: only what tells people, or the web, of a moment. How long something lasts never depends on it."""

import ast
from pathlib import Path

import farmagent
import farmproxy
import pytest

MAY = {
    "farmproxy": {
        "registry/ids.py",
        "registry/leases.py",
        "observe/logs.py",
    },  # ids sort by time, moments are shown, lines are stamped
    "farmagent": {"logs.py", "render/cookies.py"},  # lines are stamped, a cookie expires at a moment
}


WALL = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def reads_wall_clock(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ".".join(ast.unparse(node).split(".")[-2:]) in WALL:
            return True
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and {a.name for a in node.names} & {"time"}
        ):
            return True
    return False


@pytest.mark.parametrize("package", [farmproxy, farmagent])
def test_only_these_read_the_wall_clock(package):
    folder = Path(package.__file__).parent
    readers = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if reads_wall_clock(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert readers == MAY[package.__name__]
