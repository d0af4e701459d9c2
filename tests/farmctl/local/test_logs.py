"""Logs: bounded without the writer noticing, read back in order, by time, and followed."""

import itertools
import json

from farmctl.testbeds.local.processes import children, proctree
from farmctl.testbeds.log_files import Logs, follow, tail, written_at


def line(t):
    return json.dumps({"event": "e", "t": t}) + "\n"


def test_lines_leave_out_what_is_still_being_written(tmp_path):
    logs = Logs(tmp_path)
    with logs.open("pod") as file:
        file.write((line(1) + '{"event": "half').encode())
    assert logs.lines("pod") == [line(1).strip()]
    assert logs.lines("nobody") == []
    assert logs.names() == ["pod"]


def test_since_takes_json_lines_by_their_time(tmp_path):
    logs = Logs(tmp_path)
    logs.path("pod").write_text(line(1) + "a traceback\n" + line(2.5) + '{"t": "x"}\n[1]\n' + line(3))
    assert [written_at(one) for one in logs.since("pod", 2)] == [2.5, 3]


async def test_a_child_inherits_no_proxy_and_no_secret(tmp_path, monkeypatch):
    for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY", "no_proxy", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    logs = Logs(tmp_path)
    child = await children.start(("env",), env={"OWN": "1"}, token="t", log="env", logs=logs)
    assert await child.wait() == 0
    names = {line.partition("=")[0] for line in logs.lines("env")}
    assert "OWN" in names
    assert names <= {*children.PASSED_ON, "OWN", proctree.TOKEN_VARIABLE}


def test_bounded_while_a_writer_appends(tmp_path):
    logs = Logs(tmp_path)
    with logs.open("pod") as file:
        for t in range(100):
            file.write(line(t).encode())
            file.flush()
            logs.bound(limit=200)
    seen = [written_at(one) for one in logs.lines("pod")]
    assert seen == [float(t) for t in range(100)][-len(seen) :]
    assert len(seen) >= 6
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1000


def test_only_the_last_dead_pods_keep_their_logs(tmp_path):
    logs = Logs(tmp_path)
    for name in "abc":
        logs.path(name).write_text(line(1))
    assert logs.drop_oldest(["a", "b", "c"], keep=2) == ["b", "c"]
    assert logs.names() == ["b", "c"]


def test_follow_gives_new_lines_whole_and_starts_over_after_a_truncation(tmp_path):
    path = tmp_path / "pod.log"
    path.write_text("old\n")
    new = follow(path, path.stat().st_size)
    assert next(new) is None
    with path.open("a") as file:
        file.write("on")
    assert next(new) is None
    with path.open("a") as file:
        file.write("e\ntwo\n")
    assert list(itertools.islice(new, 3)) == ["one", "two", None]
    path.write_text("x\n")
    assert next(new) == "x"
    path.unlink()
    assert list(itertools.islice(new, 2)) == [None, None]


def test_tail_of_a_huge_or_absent_file(tmp_path):
    path = tmp_path / "log"
    assert tail(path) == []
    path.write_text("".join(f"{n}\n" for n in range(50_000)))
    assert tail(path, 2) == ["49998", "49999"]
