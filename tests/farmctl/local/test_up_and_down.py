"""`up` and `down` where something is in the way: cause and remedy, nothing half-made, everything mendable."""

import asyncio
import errno
import os
import shutil
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from farmctl.errors import StageError
from farmctl.testbeds import choosing
from farmctl.testbeds.base import NoFarm, Setup
from farmctl.testbeds.finding import current
from farmctl.testbeds.local import down, preflight, up
from farmctl.testbeds.local.down import take_down
from farmctl.testbeds.local.processes import proctree
from farmctl.testbeds.local.settings import LocalSettings

CALM = {"pods": None, "door_named": False, "progress": lambda _: None}


def supervisor(settings):
    """Its pid: the only carrier of the token that is led by no shim."""
    return next(pid for pid in proctree.carriers(settings.token) if str(settings.state) in cmdline(pid))


def cmdline(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def nothing_left(settings):
    return (
        not proctree.carriers(settings.token) and not settings.state.exists() and not settings.work.exists()
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_taken_door_is_named_whatever_its_family(host):
    family = socket.AF_INET6 if "[" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), 0), family=family) as other:
        address = f"{host}:{other.getsockname()[1]}"
        with pytest.raises(StageError, match="taken by another program"):
            preflight.check_port("the door", address, "elsewhere")
    preflight.check_port("the door", address, "elsewhere")


async def test_second_up_keeps_the_farm_and_brings_the_count_asked_for(up, settings, folder, until):
    async with up(settings) as farm:
        before = await farm.testbed.pods()
        other = replace(settings, token="another", work=settings.work.with_name("other"))
        async with asyncio.timeout(30):
            await start_again(other, folder)
            assert await farm.testbed.pods() != []
            state = await start_again(other, folder, pods=3)
        assert state["wanted"] == 3
        after = await farm.testbed.pods()
        assert {pod.uid for pod in before} < {pod.uid for pod in after}
        assert (await farm.testbed.setup()).pods == 3
        with pytest.raises(StageError, match="its door at"):
            await start_again(replace(other, door="127.0.0.1:1"), folder, door_named=True)
        assert len(await farm.testbed.pods()) == 3


async def test_second_up_keeps_settings_and_says_which_it_would_change(up, settings, folder):
    spare = {"FARMAGENT_RECYCLE": "spare"}
    with_spare = replace(settings, setup=replace(settings.setup, agent_env=spare))
    async with up(with_spare) as farm:
        assert farm.testbed.overrides.agent == spare
        await start_again(with_spare, folder)
        with pytest.raises(StageError, match="other settings: FARMAGENT_RECYCLE spare -> default"):
            await start_again(settings, folder)
        assert (await farm.testbed.setup()).agent_env == spare


async def start_again(settings, folder, **asked):
    from farmctl.testbeds.local.up import bring_up

    return await bring_up(settings, folder, **{**CALM, "timeout_s": 30, **asked})


async def test_second_up_takes_a_busy_farm_as_whole(up, settings, folder, until):
    # a pod in use is not ready, and no failed one
    async with up(settings) as farm:
        pods = await farm.testbed.pods()
        for pod in pods:
            await asyncio.to_thread(_busy, pod.address)

        async def all_busy():
            return not any(pod.ready for pod in await farm.testbed.pods())

        await until(all_busy)
        await start_again(settings, folder)


def _busy(address):
    import urllib.request

    urllib.request.urlopen(f"http://{address}/set?ready=0", timeout=5).close()


@pytest.mark.parametrize("what", ["door", "admin", "pod"])
async def test_taken_port(settings, folder, what):
    address = f"{settings.network}.1:{settings.agent_port}" if what == "pod" else getattr(settings, what)
    with socket.socket() as other:
        host, _, port = address.rpartition(":")
        # A connection of an earlier farm may still wait for its last packets (TIME_WAIT): it listens to nobody.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, int(port)))
        other.listen()
        with pytest.raises(StageError, match=f"{what}.* {address}: the port is taken") as caught:
            await start_again(settings, folder)
    assert caught.value.exit_code == 3
    assert "ss -ltnp" in caught.value.hint
    assert nothing_left(settings)


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ({"agent_env": {"FAKE_CRASH": "1"}}, "no Chrome: cannot start"),
        ({"proxy_env": {"FARMPROXY_FAKE_CRASH": "1"}}, "bad setting"),
    ],
)
async def test_what_dies_at_once_is_shown_with_its_last_words(settings, folder, setup, says):
    with pytest.raises(StageError, match=says):
        await start_again(replace(settings, setup=Setup(pods=1, **setup)), folder)
    assert nothing_left(settings)


async def test_not_whole_in_time_leaves_nothing(settings, folder):
    slow = replace(settings, setup=Setup(pods=1), chrome=shutil.which("true"))
    with pytest.raises(StageError, match=r"not whole after 3 s: .*(not ready|not answer)"):
        await start_again(slow, folder, timeout_s=3)
    assert nothing_left(settings)


@pytest.mark.parametrize(
    ("pods", "proxy", "says"),
    [
        ([("a", True), ("b", False)], True, "not ready: b"),
        ([("a", True)], False, "the proxy is not ready"),
        ([("a", True)], True, "the endpoints are not ready"),
    ],
)
def test_what_lacks_is_named(pods, proxy, says):
    state = {"pods": [{"name": name, "ready": ready} for name, ready in pods], "proxy": {"ready": proxy}}
    assert up.lacks(state) == says
    assert up.lacks(None) == "the supervisor does not answer"


async def test_interrupted_half_way_cleans_up(settings, folder, until):
    never = replace(settings, chrome=shutil.which("true"))
    begun = asyncio.get_running_loop().create_task(start_again(never, folder, timeout_s=60))
    await until(lambda: len(proctree.carriers(settings.token)) >= 4)
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert nothing_left(settings)


async def test_two_at_once_do_not_meet(settings, folder):
    folder.make()
    with folder.held(folder.up_lock) as ours:
        assert ours
        with pytest.raises(StageError, match="another `farmctl up`"):
            await start_again(settings, folder)
    await take_down(folder)


async def test_supervisor_killed_takes_everything_along_and_up_mends(
    up, settings, folder, until, monkeypatch
):
    monkeypatch.setenv("FARMCTL_STATE", str(folder.path))
    async with up(settings) as farm:
        os.kill(supervisor(settings), signal.SIGKILL)
        await until(lambda: not proctree.carriers(settings.token))
        with pytest.raises(NoFarm, match="crashed"):
            await current()
        new = replace(settings, token="0123456789ab", work=settings.work.with_name("farmctl-0123456789ab"))
        await start_again(new, folder)
        assert len(await farm.testbed.pods()) == 2
        assert not settings.work.exists()
    assert not new.work.exists()
    assert not proctree.carriers(new.token)


async def test_down_after_a_crash_and_down_of_a_hanging_supervisor(up, settings, folder, until, monkeypatch):
    monkeypatch.setattr(down, "SHUTDOWN_LIMIT_S", 0.5)
    async with up(settings):
        os.kill(supervisor(settings), signal.SIGSTOP)
        ended = await take_down(folder)
        assert ended.was_up
        assert ended.killed > 0
    assert nothing_left(settings)
    assert not (await take_down(folder)).found


async def test_leftovers_that_carry_the_token_are_ended_and_nothing_else(settings, folder):
    folder.make()
    settings.save(folder.settings)
    settings.work.mkdir()
    env = {**os.environ, proctree.TOKEN_VARIABLE: settings.token}
    ours = await asyncio.create_subprocess_exec("sleep", "600", env=env)
    other = await asyncio.create_subprocess_exec(
        "sleep", "600", env={**env, proctree.TOKEN_VARIABLE: "not-" + settings.token}
    )
    try:
        ended = await take_down(folder)
        assert (ended.was_up, ended.killed, ended.found) == (False, 1, True)
        assert await ours.wait() == -signal.SIGKILL
        assert other.returncode is None
    finally:
        other.kill()
        await other.wait()
    assert nothing_left(settings)


@pytest.mark.parametrize("garbage", [b"", b"{}", b'{"token": "abcabcabcabc", "door": 7}', b"\xff\0"])
async def test_stale_state_folder_is_mended(up, settings, folder, garbage):
    folder.make()
    folder.settings.write_bytes(garbage)
    folder.socket.write_text("")
    (folder.path / "notes.txt").write_text("mine")
    async with up(settings) as farm:
        assert len(await farm.testbed.pods()) == 2
    assert (folder.path / "notes.txt").read_text() == "mine"
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


async def test_supervisor_ends_when_its_folder_is_taken_away(up, settings, folder, until):
    async with up(settings):
        await asyncio.to_thread(shutil.rmtree, folder.path)
        await until(lambda: not proctree.carriers(settings.token))
    assert not settings.work.exists()


async def test_full_disk_is_said_before_and_during(settings, folder, monkeypatch):
    full = shutil.disk_usage("/")._replace(free=1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(preflight.shutil, "disk_usage", lambda _: full)
        with pytest.raises(StageError, match="full: 1 MiB free"):
            await start_again(settings, folder)
    assert nothing_left(settings)

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalSettings, "save", no_room)
        with pytest.raises(StageError, match="the disk is full") as caught:
            await start_again(settings, folder)
    assert caught.value.hint
    assert nothing_left(settings)


def test_folder_that_chrome_cannot_reach_is_said(tmp_path, monkeypatch):
    (tmp_path / "closed" / "work").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 0)
    with pytest.raises(StageError, match="is closed to others") as caught:
        preflight.check_reach(tmp_path / "closed" / "work")
    assert "TMPDIR" in caught.value.hint


async def test_folder_of_another_user_or_too_deep(settings, folder, tmp_path, monkeypatch):
    from farmctl.testbeds.local.state import StateFolder

    with pytest.raises(StageError, match="too long for a socket"):
        StateFolder(tmp_path / ("x" * 90)).make()
    folder.path.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(StageError, match="belongs to another user"):
        folder.make()
    (tmp_path / "file").write_text("")
    with pytest.raises(StageError, match="cannot write"):
        StateFolder(tmp_path / "file" / "state").make()


@pytest.mark.parametrize(
    ("asked", "system", "kind", "why"),
    [
        ("auto", "Linux", "local", "Linux"),
        ("local", "Linux", "local", "asked for"),
        ("auto", "Darwin", "kind", "Darwin"),
        ("kind", "Linux", "kind", "asked for"),
    ],
)
def test_choice_says_why(asked, system, kind, why):
    choice = choosing.choose(asked, system)
    assert choice.kind == kind
    assert why in choice.why


def test_another_system_is_sent_to_kind():
    with pytest.raises(StageError, match="Linux only, this is Darwin") as caught:
        choosing.choose("local", "Darwin")
    assert "--testbed kind" in caught.value.hint
