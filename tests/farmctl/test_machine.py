"""What `farmctl doctor` says of a machine that lacks something: the verdict, and the command that mends it."""

import socket

import pytest

from farmctl import machine
from farmctl.errors import StageError
from farmctl.images import engines
from farmctl.images.engines import Engine


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


@pytest.mark.parametrize(
    ("engine", "runc", "verdict"),
    [
        (Engine("podman", "4.3.1", unified=False), "/usr/sbin/runc", "ok"),
        (Engine("podman", "4.3.1", unified=False), None, "missing"),
        (Engine("podman", "5.4.0", unified=True), None, "ok"),
        (Engine("podman", "5.4.0", unified=False, elsewhere=True), None, "ok"),
        (Engine("docker", "28.5.2", unified=False), None, "ok"),
    ],
)
def test_runc_is_asked_for_only_where_the_engine_needs_it(monkeypatch, engine, runc, verdict):
    monkeypatch.setattr(machine.shutil, "which", {"runc": runc}.get)
    monkeypatch.setattr(engines, "find", lambda: engine)
    first, cgroups = machine.engine()
    assert (first.verdict, cgroups.verdict) == ("ok", verdict)
    assert f"{engine.name} {engine.version}" in first.found
    assert bool(cgroups.mend) is (verdict == "missing")


def test_why_no_engine_serves_is_told_as_up_would(monkeypatch):
    def none():
        raise StageError(
            "docker is set to the engine of another machine: ssh://far", hint="unset DOCKER_HOST"
        )

    monkeypatch.setattr(engines, "find", none)
    (found,) = machine.engine()
    assert (found.verdict, found.mend) == ("missing", "unset DOCKER_HOST")
    assert "ssh://far" in found.found


def test_a_port_that_somebody_has_is_told_with_how_to_see_who():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        found = machine.port(number, "door")
    assert found.verdict == "warn"
    assert f"ss -ltnp sport = :{number}" in found.mend


def test_every_lack_has_a_remedy():
    for finding in machine.examine():
        assert finding.verdict == "ok" or finding.mend, finding
