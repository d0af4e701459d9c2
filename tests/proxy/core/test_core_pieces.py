"""The small parts on their own: timers, the queue, the order of free pods, stories, the diagram, the imports."""

import ast
from pathlib import Path

import farmproxy.core
from farmproxy.core.callers import Caller, Holds, Phase
from farmproxy.core.event_context import Timers
from farmproxy.core.events import PodSeen
from farmproxy.core.free_pods import Choice, FreePods
from farmproxy.core.pods import TABLE, PodState, new_pod, state_diagram
from farmproxy.core.story import LINES, Ended, note
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=50))
def test_timers_fire_in_order_and_cancelled_ones_never(entries: list[tuple[float, bool]]) -> None:
    timers, fired = Timers(), []
    for n, (at, cancel) in enumerate(entries):
        timer = timers.set(at, fired.append, (at, n))
        if cancel:
            timers.cancel(timer)
            timers.cancel(timer)  # twice is fine
    kept = sorted((at, n) for n, (at, cancel) in enumerate(entries) if not cancel)
    assert len(timers) == len(kept)
    assert timers.next_at() == (kept[0][0] if kept else float("inf"))
    while timers.fire_next(100):
        pass
    assert fired == kept


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for n in range(100_000):
        timers.cancel(timers.set(900 + n, print, None))
    assert len(timers._heap) < 1000


def caller(seq: int) -> Caller:
    return Caller(f"c{seq}", "d", "", 10, seq, 0, 300, 900)


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_the_queue_is_by_arrival_whatever_the_order_of_adding(order: list[int], leavers: set[int]) -> None:
    holds = Holds()
    callers = {seq: caller(seq) for seq in order}
    for seq in order:
        holds.add(callers[seq])
    for seq in leavers:
        holds.leave(callers[seq])
    stay = sorted(set(order) - leavers)
    assert [one.seq for one in holds.in_order()] == stay
    assert (len(holds), holds.cost) == (len(stay), 10 * len(stay))
    taken = []
    while holds:
        one = holds.take()
        one.phase = Phase.DIALLING
        taken.append(one.seq)
    assert taken == stay


def test_those_who_left_the_queue_do_not_pile_up() -> None:
    holds = Holds()
    holds.add(caller(0))
    for seq in range(1, 10_000):
        one = caller(seq)
        holds.add(one)
        holds.leave(one)
    assert len(holds._heap) < 200
    assert len(holds) == 1


def test_the_choice_of_a_pod_touches_two_entries_however_many_left_before() -> None:
    for choice in Choice:
        free = FreePods(choice)
        pods = [new_pod(PodSeen(f"u{n}", "", "10.0.0.1", 1, True, False)) for n in range(1000)]
        for pod in pods:
            free.add(pod)
        first, second = (pods[0], pods[1]) if choice is Choice.LONGEST_FREE else (pods[-1], pods[-2])
        assert free.choose(None) is first
        assert free.choose(first.key) is second
        for pod in pods[1:]:
            free.remove(pod)
        assert free.choose(pods[0].key) is pods[0]


def test_stories_are_bounded_and_keep_their_beginning() -> None:
    lines: list[int] = []
    for n in range(1000):
        note(lines, n)
    assert len(lines) <= LINES
    assert lines[0] == 0
    assert lines[-10:] == list(range(990, 1000))
    ended = Ended(limit=3)
    for n in range(10):
        ended.keep(f"c{n}", [n])
    assert len(ended) == 3
    assert ended.get("c9") == [9]
    assert ended.get("c0") == []


def test_the_diagram_has_every_edge_of_the_table() -> None:
    text = state_diagram()
    assert text.startswith("stateDiagram-v2\n")
    assert text.count("-->") == len(TABLE)
    for state in PodState:
        assert f": {state}\n" in text
    for line in text.splitlines():
        if "-->" in line:
            assert line.count(":") == 1  # a second colon or a semicolon ends the label early
            assert ";" not in line


def test_the_states_are_the_words_that_dashboards_and_status_readers_know() -> None:
    assert list(PodState) == ["unready", "free", "dialling", "leased", "recycling", "set-aside"]


def test_the_core_imports_nothing_that_could_wait_or_tell_the_time() -> None:
    standard = {"collections", "dataclasses", "enum", "functools", "heapq", "ipaddress", "typing"}
    allowed = {*standard, "farmwire", "farmproxy", "msgspec"}
    for path in Path(farmproxy.core.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
                assert not name.startswith("farmproxy.") or name.startswith("farmproxy.core")
