"""`farmctl up --agent-env NAME=VALUE --proxy-env NAME=VALUE`: what is taken, what is refused, what is remembered."""

import msgspec
import pytest

from farmctl import cli
from farmctl.commands.up import address, settings_for
from farmctl.errors import UsageError
from farmctl.testbeds.base import Setup
from farmctl.testbeds.kind import up
from farmctl.testbeds.kind.cluster.state import Installed, KindFolder
from farmctl.testbeds.local.settings import LocalSettings
from farmctl.testbeds.local.state import StateFolder
from farmctl.testbeds.overrides import Overrides, asked

SPARE = Overrides({"FARMAGENT_RECYCLE": "spare"}, {"FARMPROXY_HOLD_LIMIT": "5"})


def test_known_settings_are_taken():
    assert asked(["FARMAGENT_RECYCLE=spare"], ["FARMPROXY_HOLD_LIMIT=5"]) == SPARE
    assert asked(["FARMAGENT_RECYCLE="], []) == Overrides({"FARMAGENT_RECYCLE": ""})
    assert asked(["FARMAGENT_CHROME_ARGS=--lang=de --mute-audio"], []).agent == {
        "FARMAGENT_CHROME_ARGS": "--lang=de --mute-audio"
    }


@pytest.mark.parametrize(
    ("agent", "proxy", "said"),
    [
        (["FARMAGENT_RECYCEL=spare"], [], "did you mean FARMAGENT_RECYCLE?"),
        (["RECYCLE=spare"], [], "RECYCLE is no setting of the agent"),
        (["FARMPROXY_HOLD_LIMIT=5"], [], "is no setting of the agent"),
        ([], ["FARMPROXY_HOLD=5"], "is no setting of the proxy"),
        (["FARMAGENT_RECYCLE"], [], "is no NAME=VALUE"),
        (["FARMAGENT_RECYCLE=often"], [], "must be one of fresh, spare"),
        ([], ["FARMPROXY_HOLD_LIMIT=many"], "FARMPROXY_HOLD_LIMIT is 'many'"),
        ([], ["FARMPROXY_HOLD_DEFAULT_S=9999"], "at most FARMPROXY_HOLD_CEILING_S"),
        (["FARMAGENT_LISTEN=0.0.0.0:1"], [], "the testbed's to set"),
        ([], ["FARMPROXY_DOOR=0.0.0.0:1"], "the testbed's to set"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(agent, proxy, said):
    with pytest.raises(UsageError, match=said.replace("?", r"\?")) as caught:
        asked(agent, proxy)
    if "no setting" in str(caught.value):
        assert "FARMAGENT_RECYCLE, " in caught.value.hint or "FARMPROXY_HOLD_LIMIT, " in caught.value.hint


def test_the_command_line_refuses_with_the_exit_code_of_usage(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "state"))
    assert cli.main(["up", "--testbed", "local", "--agent-env", "FARMAGENT_NONE=1"]) == 2
    assert "one of: " in capsys.readouterr().err


def test_what_is_not_named_stays_and_what_changes_is_said():
    wanted = Overrides({"FARMAGENT_RECYCLE": "", "FARMAGENT_READY": "healthy"}).over(SPARE)
    assert wanted == Overrides({"FARMAGENT_READY": "healthy"}, {"FARMPROXY_HOLD_LIMIT": "5"})
    assert wanted.changes(SPARE) == [
        "FARMAGENT_READY default -> healthy",
        "FARMAGENT_RECYCLE spare -> default",
    ]
    assert Overrides().over(SPARE).changes(SPARE) == []


def test_a_cluster_s_record_keeps_them_and_the_manifests_carry_them(tmp_path):
    said: list[str] = []
    folder = KindFolder(tmp_path / "kind")
    folder.write(Installed(phase="up").with_overrides(SPARE, said.append))
    assert said == ["setting FARMAGENT_RECYCLE default -> spare", "setting FARMPROXY_HOLD_LIMIT default -> 5"]
    said.clear()
    kept = folder.read().with_overrides(Overrides(), said.append)
    assert (kept.overrides, said) == (SPARE, [])
    rendering = up.rendering(kept, folder)
    assert (rendering.agent_env, rendering.proxy_env) == (SPARE.agent, SPARE.proxy)


def test_a_record_of_before_is_still_read():
    before = msgspec.json.encode({"phase": "up", "pods": 3})
    assert msgspec.json.decode(before, type=Installed).overrides == Overrides()


def test_a_local_farm_that_crashed_comes_up_with_what_it_had(tmp_path, monkeypatch):
    monkeypatch.setenv("FARMCTL_CHROME", "/bin/true")
    folder = StateFolder(tmp_path)
    assert settings_for(folder, None, None, SPARE).setup == Setup(
        agent_env=dict(SPARE.agent), proxy_env=dict(SPARE.proxy)
    )
    settings_for(folder, None, None, SPARE).save(folder.settings)
    assert settings_for(folder, None, None, Overrides()).setup.overrides == SPARE
    assert settings_for(folder, None, None, Overrides({"FARMAGENT_RECYCLE": ""})).setup.agent_env == {}
    assert LocalSettings.remembered(tmp_path / "none") == Setup()


def test_an_ipv6_door_is_written_as_in_urls(tmp_path, monkeypatch):
    assert address("[::1]:9322") == ("[::1]", 9322)
    monkeypatch.setenv("FARMCTL_CHROME", "/bin/true")
    made = settings_for(StateFolder(tmp_path), None, "[::1]:9322", Overrides())
    assert (made.door, made.admin) == ("[::1]:9322", "[::1]:9323")
    with pytest.raises(UsageError) as caught:
        address("::1:9322")
    assert caught.value.hint == "farmctl up --door '[::1]:9322'"


def test_kind_says_at_once_that_its_door_is_ipv4(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "state"))
    assert cli.main(["up", "--testbed", "kind", "--door", "[::1]:9322"]) == 2
    assert "farmctl up --door 127.0.0.1:9322" in capsys.readouterr().err
