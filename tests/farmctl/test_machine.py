"""What `farmctl doctor` says of a machine that lacks something: the verdict, and the command that mends it."""

import socket

import pytest

from farmctl import machine


def table(folder, count, limit):
    (folder / "nf_conntrack_count").write_text(f"{count}\n")
    (folder / "nf_conntrack_max").write_text(f"{limit}\n")
    return folder


@pytest.mark.parametrize(("count", "verdict"), [(0, "ok"), (800, "ok"), (801, "warn"), (1000, "warn")])
def test_a_table_of_connections_that_fills_up_is_told(tmp_path, count, verdict):
    found = machine.connections(table(tmp_path, count, 1000))
    assert (found.verdict, found.found) == (verdict, f"{count} of 1000")
    assert ("nf_conntrack_max=2000" in found.mend) is (verdict == "warn")


def test_no_packet_filter_is_well(tmp_path):
    assert machine.connections(tmp_path).verdict == "ok"


@pytest.mark.parametrize(("runc", "verdict"), [("/usr/sbin/runc", "ok"), (None, "warn")])
def test_runc_is_asked_for_only_where_it_is_missing(monkeypatch, runc, verdict):
    monkeypatch.setattr(machine.Path, "exists", lambda _: False)
    monkeypatch.setattr(machine.shutil, "which", {"runc": runc}.get)
    found = machine.cgroups()
    assert found.verdict == verdict
    assert bool(found.mend) is (verdict == "warn")


def test_a_port_that_somebody_has_is_told_with_how_to_see_who():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        found = machine.port(number, "door")
    assert found.verdict == "warn"
    assert f"ss -ltnp sport = :{number}" in found.mend


def test_every_lack_has_a_remedy():
    for finding in machine.examine():
        assert finding.verdict == "ok" or finding.mend, finding
