import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from farmctl.bench import docs, profiles, suite, tables
from farmctl.bench.figures import Spread
from farmctl.bench.results import Profile, Run, Section, Verdict, load
from farmctl.errors import UsageError


@pytest.fixture
def run():
    section = Section("lease", "CPU of a lease", "How.", 2, {"pods": 50}, notes=["A note."])
    section.row("a whole lease", "µs", {"farm": [800.0, 900.0], "haproxy": [400.0, 410.0]})
    section.row("ratio", "x", {"ratio": [2.0, 2.2]})
    section.verdicts = [
        Verdict("against HAProxy", "x", 3.0, 2.1),
        Verdict("moonshot", "x", 1.5, 2.1, note="see below"),
        Verdict("sooner", "x", 5.0, 4.0, at_least=True),
    ]
    section.profiles = [Profile("farm", "cProfile, own time", [("farmproxy.tunnel.tunnels: start", 0.25)])]
    return Run(
        {"cpu": "a CPU", "cores": 2}, {"haproxy": "2.6"}, "2026-01-01T00:00:00+00:00", False, [section]
    )


def test_a_run_survives_its_json(run, tmp_path):
    path = tmp_path / "performance.json"
    path.write_text(run.as_json())
    assert load(path) == run
    assert [v["met"] for v in json.loads(run.as_json())["sections"][0]["verdicts"]] == [True, False, False]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 99}', '{"schema": 1, "machine": {}}'])
def test_another_file_is_a_usage_error(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        load(path)
    with pytest.raises(UsageError):
        load(tmp_path / "absent.json")


def test_the_page_is_made_of_the_json_alone(run, tmp_path):
    path = tmp_path / "performance.json"
    path.write_text(run.as_json())
    page = docs.write(path)
    text = page.read_text()
    assert page == tmp_path / "performance.md"
    assert "| a whole lease | µs | 850 (800-900) | 405 (400-410) |  |" in text
    assert "| ratio | x |  |  | 2.10 (2.00-2.20) |" in text
    assert "at most 1.50 x | 2.10 x | **MISSED** (see below) |" in text
    assert "at least 5.00 x | 4.00 x | **MISSED** |" in text
    assert "| against HAProxy | at most 3.00 x | 2.10 x | met |" in text
    assert "| `farmproxy.tunnel.tunnels: start` | 25.0% |" in text
    assert "quick run" not in text
    run.quick = True
    path.write_text(run.as_json())
    assert "quick run" in docs.write(path).read_text()


def test_the_table_says_what_was_missed(run):
    out = io.StringIO()
    tables.show(run, Console(file=out, width=140))
    assert "850 (800-900)" in out.getvalue()
    assert out.getvalue().count("MISSED") == 2
    assert "A note." in out.getvalue()


def test_a_spread_of_one_round_stands_alone():
    assert tables.spread(Spread.of([1.5])) == "1.50"


def test_benchmarks_are_chosen_by_name_in_the_page_s_order():
    assert suite.chosen([]) == suite.NAMES
    assert suite.chosen(["job", "lease"]) == ["lease", "job"]
    with pytest.raises(UsageError, match="no benchmark"):
        suite.chosen(["speed"])


def test_a_profile_counts_the_load_alone_and_gives_c_functions_to_their_callers():
    core, door = ("/x/farmproxy/core/farm.py", 1, "handle"), ("/x/farmproxy/door/door.py", 2, "judge")
    send, dumps = ("~", 0, "<method 'send' of '_socket.socket' objects>"), ("~", 0, "<built-in method len>")
    loop = ("/py/asyncio/runners.py", 86, "run")

    def entry(own_s, callers=()):
        return (1, 1, own_s, own_s, {who: (1, 1, s, s) for who, s in dict(callers).items()})

    idle = {core: entry(1.0), loop: entry(50.0), send: entry(0.5, {core: 0.5})}
    busy = {
        core: entry(3.0),
        door: entry(1.0),
        loop: entry(90.0),
        send: entry(1.5, {core: 1.5}),
        dumps: entry(1.0, {door: 0.75, loop: 0.25}),
    }
    spent = profiles.difference(busy, idle)
    parts = dict(profiles.by_part(spent).lines)
    assert parts == pytest.approx(
        {
            "core: who gets which pod": 2 / 4.75,
            "door: accept, head, routes, the caller's state": 1.75 / 4.75,
            profiles.SYSTEM: 1 / 4.75,
        }
    )
    functions = dict(profiles.by_function(spent).lines)
    assert functions["farmproxy.core.farm: handle"] == pytest.approx(2 / 5)
    assert not any("run" in name for name in functions)


def test_a_profile_s_parts_are_rooms_and_modules_that_the_proxy_has():
    proxy = Path(__file__).parents[3] / "proxy/farmproxy"
    there = {path.stem for path in proxy.rglob("*") if path.is_dir() or path.suffix == ".py"}
    assert profiles.PARTS.keys() <= there
    load = {
        (f"/x/farmproxy/{file}.py", 1, "f"): (1, 1, 1.0, 1.0, {}) for file in ("net/poller", "net/sockets")
    }
    parts = dict(profiles.by_part(profiles.difference(load, {})).lines)
    assert parts == {"readiness and timers": 0.5, "socket options": 0.5}


def test_the_committed_page_is_the_committed_json_s():
    folder = Path(__file__).parents[3] / "docs"
    source = folder / "performance.json"
    assert (folder / docs.PAGE).read_text() == docs.text(load(source), source.name)
