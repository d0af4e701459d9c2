"""`farmctl status` for people: a table of pods as kubectl prints them, and below it what is out of order and what to do."""

from collections.abc import Iterator
from itertools import groupby

from rich.table import Table
from rich.text import Text

from farmctl.reports.disagreements import Disagreement
from farmctl.reports.farm_status import UNKNOWN, FarmStatus

COLOURS = {"free": "green", "leased": "cyan", "dialling": "cyan", "recycling": "yellow", "set-aside": "red"}
BAD, ADVICE = "red", "dim"


def table(seen: FarmStatus, *, wide: bool) -> Table:
    """People's view; ``wide`` adds what scripts would rather take from JSON."""
    shown = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    columns = ["NAME", "STATE", "PROXY", "LEASE", "RESTARTS", "ADDRESS", "AGE"]
    if wide:
        columns[-1:] = ["LABEL", "NODE", "UID", "AGE"]
    for column in columns:
        shown.add_column(column, no_wrap=True)
    for row in seen.rows:
        cells = [row.name, row.shown_state(), row.state, row.shown_lease(wide=wide)]
        cells += [UNKNOWN if row.restarts is None else str(row.restarts), row.address]
        cells += [row.label, row.node, row.uid] if wide else []
        texts = [Text(cell) for cell in [*cells, UNKNOWN if row.age_s is None else age(row.age_s)]]
        texts[2].stylize(COLOURS.get(row.state, ""))
        shown.add_row(*texts)
    return shown


def lines(seen: FarmStatus) -> list[Text]:
    """What stands below the table."""
    return list(_lines(seen))


def _lines(seen: FarmStatus) -> Iterator[Text]:
    yield Text(f"testbed {seen.kind}, door {seen.door}, {_counts(seen)}")
    if seen.overrides.words():
        yield Text(f"settings other than the defaults: {', '.join(seen.overrides.words())}")
    for name, pool in (seen.proxy or {}).get("pools", {}).items():
        held, leases = len(pool["held"]), len(pool["leases"])
        yield Text(f"pool {name}: {leases} leased, {held} held, demand {pool['demand']:g}")
    if (seen.proxy or {}).get("draining"):
        yield Text("the proxy drains: it serves out what it has, and takes no new callers", style=BAD)
    for node in seen.nodes_down():
        stopped = node.running is False
        yield Text(f"node {node.name} {'does not run' if stopped else 'is not Ready'}", style=BAD)
        yield _try(_of_node(seen, stopped=stopped))
    if seen.api_problem:
        yield from _without_api(seen)
    if seen.proxy is None:
        yield from _without_proxy(seen)
    for remedy, those in groupby(seen.disagreements, lambda one: one.remedy):
        for one in those:
            yield Text(_told(one), style=BAD)
        yield _try(remedy)  # one remedy for many pods is said once


def _without_api(seen: FarmStatus) -> Iterator[Text]:
    yield Text(seen.api_problem, style=BAD)
    if seen.proxy is not None:
        heard = f"it last heard of the API server {age(seen.proxy.get('watch_age_s', 0.0))} ago"
        yield Text(f"shown is what the proxy knows: {heard}, and serves on by that", style=BAD)
    if seen.api_remedy:
        yield _try(seen.api_remedy)


def _without_proxy(seen: FarmStatus) -> Iterator[Text]:
    if seen.api_problem and seen.kind == "existing":
        yield Text("the proxy is asked through that API server: nothing is known of it", style=BAD)
        return
    yield Text(f"the proxy does not answer at {seen.admin}", style=BAD)
    yield _try("farmctl up repairs it" if seen.api_problem else "farmctl logs proxy; farmctl up repairs it")


def _of_node(seen: FarmStatus, *, stopped: bool) -> str:
    """Nothing of a cluster of somebody else's is for farmctl to repair."""
    if seen.kind == "existing":
        return "the cluster is not farmctl's: ask who runs it"
    return "farmctl up starts it again" if stopped else "farmctl up repairs it"


def _counts(seen: FarmStatus) -> str:
    if seen.api_problem:
        return f"pods that the proxy knows: {len(seen.rows)}"
    return f"pods Ready: {seen.pods_ready()}, endpoints ready: {seen.endpoints_ready()}"


def _told(one: Disagreement) -> str:
    return f"{one.about}: {one.what}" + ("" if one.for_s is None else f", for {age(one.for_s)}")


def _try(remedy: str) -> Text:
    return Text(f"  try: {remedy}", style=ADVICE)


def age(seconds: float) -> str:
    """As kubectl prints it: the one or two largest units."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m{whole % 60}s" if whole < 600 else f"{whole // 60}m"
    if whole < 172_800:
        return f"{whole // 3600}h"
    return f"{whole // 86_400}d"
