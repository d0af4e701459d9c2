import pytest

from farmctl.errors import StageError
from farmctl.images import base, engines, sources
from farmctl.testbeds.kind.cluster import doctor_checks, preflight
from farmctl.testbeds.kind.cluster.preflight import Readings

GOOD = Readings(
    engine="podman",
    unified=True,
    runc=True,
    instances_free=500,
    instances_limit=512,
    watches_limit=1 << 20,
    disk_free_gib=200,
    modules=True,
    descriptors=1 << 16,
)


class Store:
    def __init__(self, *there):
        self.there = there

    def has_image(self, tag):
        return tag in self.there


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without a registry and without images, on which all else is there."""
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(engines, "find", Store)
    monkeypatch.setattr(sources, "reachable", lambda: False)
    monkeypatch.setattr(preflight, "read", lambda _engine, _shape: GOOD)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor_checks.programs, "version_of", lambda _: "")
    monkeypatch.setattr(doctor_checks.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(base.os, "geteuid", lambda: 0)
    return monkeypatch


def said():
    found = [each for each in doctor_checks.findings() if each.name == doctor_checks.NAME]
    return [(each.verdict, each.found, each.mend) for each in found]


def test_programs_are_told_with_their_versions_and_what_else_serves(machine):
    machine.setattr(doctor_checks.programs, "version_of", {"/usr/bin/kubectl": "v1.32.4"}.get)
    kind, kubectl = doctor_checks.findings()[:2]
    assert (kind.verdict, kubectl.verdict) == ("ok", "ok")
    assert "none on PATH: v0.33.0 is built from its module" in kind.found
    assert "v1.32.4; Kubernetes v1.34.4 is asked by the nodes' own" in kubectl.found
    machine.setattr(
        doctor_checks.programs, "version_of", lambda path: "v1.35.0" if "kubectl" in path else "v0.17.0"
    )
    machine.setattr(doctor_checks.shutil, "which", lambda name: f"/usr/bin/{name}" if name != "go" else None)
    kind, kubectl = doctor_checks.findings()[:2]
    assert kind.verdict == "missing"
    assert "v0.17.0, v0.33.0 is needed" in kind.found
    assert kubectl.found == "v1.35.0"


def test_machine_that_lacks_nothing(machine):
    assert said() == [("ok", "can be made here", "")]


def test_no_engine_is_the_one_thing_to_say(machine):
    def none():
        raise StageError("no container engine on this machine", hint="apt-get install -y podman runc")

    machine.setattr(engines, "find", none)
    assert said() == [("missing", "no container engine on this machine", "apt-get install -y podman runc")]


def test_every_lack_of_a_build_is_said_at_once(machine):
    machine.setattr(doctor_checks.shutil, "which", lambda _program: None)
    found = " ".join(what for _, what, _ in said())
    assert "no Go toolchain" in found
    assert "no debootstrap" in found


def test_with_a_registry_neither_is_needed(machine):
    machine.setattr(sources, "reachable", lambda: True)
    machine.setattr(doctor_checks.shutil, "which", lambda _program: None)
    assert said() == [("ok", "can be made here", "")]


def test_what_up_would_refuse_is_said(machine):
    machine.setattr(preflight, "read", lambda _e, _s: preflight.Readings(**{**fields(), "modules": False}))
    ((verdict, found, mend),) = said()
    assert verdict == "missing"
    assert "/lib/modules" in found
    assert mend


def fields():
    return {name: getattr(GOOD, name) for name in Readings.__dataclass_fields__}
