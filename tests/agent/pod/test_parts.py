"""The agent's small parts: connections, races, settings, directories, flags, priorities, reaping, policies."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from socket import IPPROTO_TCP, TCP_USER_TIMEOUT

import pytest
from farmagent import cancellation, settings
from farmagent.__main__ import main
from farmagent.chrome import directories, flags, policies, priorities
from farmagent.chrome.binaries import Binary, find
from farmagent.chrome.directories import ChromeDirectories, WorkDirectory
from farmagent.chrome.uids import ChromeUser
from farmagent.errors import AgentError, SettingsError
from farmagent.http.connections import Connection, PeerGone, connect
from farmagent.settings import Settings

ME = ChromeUser(os.geteuid(), os.getegid())


class TestRaces:
    async def test_work_that_is_done_first_gives_its_result(self):
        async def work():
            return 7

        assert await cancellation.unless(work(), asyncio.Event()) == 7

    async def test_an_event_cancels_the_work(self):
        event, cancelled = asyncio.Event(), asyncio.Event()

        async def work():
            event.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(cancellation.OverError):
            await cancellation.unless(work(), asyncio.Event(), event)
        assert cancelled.is_set()

    async def test_an_event_that_is_set_already_starts_no_work(self):
        event = asyncio.Event()
        event.set()

        async def work():
            raise AssertionError("started")

        with pytest.raises(cancellation.OverError):
            await cancellation.unless(work(), event)

    async def test_the_works_own_error_comes_through_bare(self):
        async def work():
            raise KeyError("x")

        with pytest.raises(KeyError):
            await cancellation.unless(work(), asyncio.Event())

    async def test_cancelled_from_outside_cancels_the_work(self):
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def work():
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(cancellation.unless(work(), asyncio.Event()))
            await began.wait()
            task.cancel()
        assert task.cancelled()
        assert cancelled.is_set()


class Pair:
    """Two ends of one TCP connection: as to Chrome, as to a proxy."""

    def __init__(self, stall_s=0.2):
        self.stall_s = stall_s

    async def __aenter__(self):
        made = asyncio.get_running_loop().create_future()
        self.server = await asyncio.get_running_loop().create_server(
            lambda: Connection(made.set_result, stall_s=self.stall_s), "127.0.0.1", 0
        )
        here = await connect(*self.server.sockets[0].getsockname(), timeout_s=5)
        self.ends = here, await made
        return self.ends

    async def __aexit__(self, *_):
        for end in self.ends:
            end.abort()
            while end.transport.get_extra_info("socket").fileno() >= 0:
                await asyncio.sleep(0)  # until the loop has closed it
        self.server.close()
        await self.server.wait_closed()


class TestConnection:
    async def test_what_came_before_fin_is_read_then_nothing(self):
        async with Pair() as (here, there):
            here.write(b"last words")
            here.close()
            await there.ended.wait()
            assert await there.receive() == b"last words"
            assert await there.receive() == b""
            with pytest.raises(PeerGone):
                await there.send(b"x")

    async def test_a_reader_that_waits_is_woken_by_the_end(self):
        async with Pair() as (here, there), asyncio.TaskGroup() as group:
            reading = group.create_task(there.receive())
            await asyncio.sleep(0)
            here.abort()
            assert await reading == b""

    async def test_unread_bytes_are_bounded(self):
        async with Pair() as (here, there):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    while True:
                        await here.send(b"x" * 65536)
            assert there._unread < 1024 * 1024

    async def test_a_peer_that_does_not_read_is_given_up(self):
        async with Pair() as (_, there):
            with pytest.raises(PeerGone):
                async with asyncio.timeout(5):
                    while True:
                        await there.send(b"x" * 65536)
            assert there.stalled

    @pytest.mark.parametrize("stall_s", [60, 0.2, 3600, 1e7])
    async def test_the_kernel_gives_no_reader_up_before_the_stall_limit(self, stall_s):
        """TCP_USER_TIMEOUT also counts while the peer's window is shut: below the limit a stall would be a loss."""
        async with Pair(stall_s) as (here, there):
            limit_s = (
                there.transport.get_extra_info("socket").getsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT) / 1000
            )
            assert limit_s > min(stall_s, 2_000_000)
            assert limit_s >= 30, "a peer that vanished is given up too early"
            towards_chrome = here.transport.get_extra_info("socket").getsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT)
            assert towards_chrome == 0, "only the heartbeat ends a Chrome that reads nothing"

    async def test_a_splice_passes_what_was_read_before_it(self):
        async with Pair() as (caller, agent_side), Pair() as (agent_other, chrome):
            caller.write(b"glued ")
            while not agent_side._chunks:
                await asyncio.sleep(0)
            agent_side.splice(agent_other)
            caller.write(b"later")
            data = b""
            while data != b"glued later":
                data += await chrome.receive()
            chrome.write(b"back")
            assert await caller.receive() == b"back"

    async def test_finish_lets_the_peer_read_the_answer_though_it_still_sends(self):
        async with Pair() as (here, there), asyncio.TaskGroup() as group:
            here.write(b"a body that nobody wants" * 1000)
            there.write(b"answer")
            finishing = group.create_task(there.finish())
            assert await here.receive() == b"answer"
            here.close()
            await finishing


class TestSettings:
    def test_defaults(self):
        made = Settings.from_env({})
        assert made.listen == ("0.0.0.0", 9222)
        assert made.pod.startswith("default/")
        assert (made.ready, made.recycle, made.private_targets) == ("free", "fresh", "refuse")

    def test_every_problem_at_once(self):
        bad = {
            "FARMAGENT_LISTEN": "9222",
            "FARMAGENT_POD": "a/b",
            "FARMAGENT_GRACE_S": "-1",
            "FARMAGENT_RECYCLE": "x",
        }
        bad |= {
            "FARMAGENT_HEARTBEAT_S": "nan",
            "FARMAGENT_PRIVATE_TARGETS": "10.0.0.0/99",
            "FARMAGENT_CHROME_ARGS": "'",
        }
        with pytest.raises(SettingsError) as caught:
            Settings.from_env(bad)
        assert [problem.partition("=")[0] for problem in caught.value.problems] == list(bad)

    def test_values(self):
        made = Settings.from_env({"FARMAGENT_LISTEN": "[::1]:1", "FARMAGENT_CHROME_ARGS": "--a='b c' --d"})
        assert made.listen == ("::1", 1)
        assert made.chrome_args == ("--a=b c", "--d")

    def test_unknown_names_are_named_not_refused(self):
        environ = {"FARMAGENT_SERVICE_HOST": "10.0.0.1", "FARMAGENT_POD": "a/b/c"}
        Settings.from_env(environ)
        assert settings.unknown(environ) == ["FARMAGENT_SERVICE_HOST"]

    def test_help_lists_all(self, capsys):
        assert main(["--help"]) == 0
        shown = capsys.readouterr().out
        for name in (
            "LISTEN",
            "READY",
            "KEY_FILE",
            "CHROME",
            "CHROME_ARGS",
            "RECYCLE",
            "PRIVATE_TARGETS",
            "GRACE_S",
        ):
            assert f"FARMAGENT_{name}\n" in shown

    def test_exit_codes(self, capsys, monkeypatch):
        assert main(["--what"]) == 2
        monkeypatch.setenv("FARMAGENT_LISTEN", "nowhere")
        assert main([]) == 2
        assert "FARMAGENT_LISTEN" in capsys.readouterr().err


class TestDirectories:
    def test_fresh_ones_share_nothing_and_all_go(self, tmp_path):
        work = WorkDirectory(tmp_path / "work")
        work.open()
        first, second = work.fresh(ME), work.fresh(ME)
        assert first.root != second.root
        (first.downloads / "file").write_text("x")
        work.close()
        assert not (tmp_path / "work").exists()

    def test_leftovers_are_wiped_and_foreign_files_are_not(self, tmp_path):
        (tmp_path / "c-old" / "profile").mkdir(parents=True)
        (tmp_path / "mine").write_text("x")
        work = WorkDirectory(tmp_path)
        work.open()
        assert not (tmp_path / "c-old").exists()
        work.close()
        assert (tmp_path / "mine").exists()

    def test_two_agents_cannot_share_one(self, tmp_path):
        first = WorkDirectory(tmp_path)
        first.open()
        with pytest.raises(AgentError, match="FARMAGENT_WORK_DIR"):
            WorkDirectory(tmp_path).open()
        first.close()

    def test_a_place_where_none_can_be_made_names_the_remedy(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(AgentError, match="FARMAGENT_WORK_DIR"):
            WorkDirectory(tmp_path / "file" / "work").open()

    @pytest.mark.parametrize("length", [10, 49, 50, 80, 200])
    def test_chromes_socket_path_is_never_too_long(self, length):
        made = ChromeDirectories(Path("/" + "w" * (length - 1)) / "c-12345678")
        assert len(made.environment()["TMPDIR"]) + directories.SOCKET_TAIL <= 107

    def test_no_secret_and_no_proxy_of_the_agent_reaches_chrome(self, tmp_path, monkeypatch):
        ours = {"FARMAGENT_KEY_FILE", "AWS_SECRET_ACCESS_KEY", "HTTP_PROXY", "https_proxy", "all_proxy"}
        for name in ours:
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        environment = ChromeDirectories(tmp_path).environment()
        assert not ours & set(environment)
        assert environment["HOME"].startswith(str(tmp_path))


class TestChromesCommandLine:
    BINARY = Binary(Path("/chrome"))

    def test_extra_arguments_come_last(self, tmp_path):
        line = flags.command_line(self.BINARY, ChromeDirectories(tmp_path), ("--window-size=1,1",))
        assert line[0] == "/chrome"
        assert line[-1] == "--window-size=1,1"
        assert "--no-sandbox" not in line
        assert not any(
            word.startswith(("--remote-debugging-address", "--remote-allow-origins")) for word in line
        )

    def test_no_sandbox_only_with_a_reason(self, tmp_path):
        binary = Binary(Path("/chrome"), no_sandbox="because")
        assert "--no-sandbox" in flags.command_line(binary, ChromeDirectories(tmp_path), ())

    def test_small_shared_memory_is_not_used(self, tmp_path):
        assert not flags._shm_is_big(tmp_path / "missing")

    def test_a_chrome_that_is_missing_names_the_remedy(self):
        with pytest.raises(AgentError, match="FARMAGENT_CHROME"):
            find(Settings.from_env({"FARMAGENT_CHROME": "/nowhere/chrome"}), Path("/tmp"))


@pytest.mark.parametrize(
    ("capabilities", "expected"), [("0000000000800000", True), ("00000000a80425fb", False)]
)
def test_a_priority_is_only_lowered_where_it_can_be_raised(tmp_path, monkeypatch, capabilities, expected):
    monkeypatch.setattr(priorities.resource, "getrlimit", lambda _: (0, 0))
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    assert priorities.can_lift(status) is expected


REAPING = """
import os, sys, time
from farmagent.chrome import reaper
assert reaper.adopt_orphans()
ours = os.fork()
if not ours:
    os._exit(3)
middle = os.fork()
if not middle:
    for _ in range(3):
        if not os.fork():
            time.sleep(0.1)
            os._exit(0)
    os._exit(0)
os.waitpid(middle, 0)
count, end = 0, time.monotonic() + 20
while count < 3 and time.monotonic() < end:
    count += reaper.reap_orphans(lambda pid: pid == ours) if os.waitid(os.P_PID, ours, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None else 0
    if ours and os.waitid(os.P_PID, ours, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        assert reaper.reap_orphans(lambda pid: pid == ours) <= 3
        assert os.waitstatus_to_exitcode(os.waitpid(ours, 0)[1]) == 3
        while count < 3 and time.monotonic() < end:
            count += reaper.reap_orphans(lambda pid: False)
print(count)
"""


def test_orphans_are_reaped_and_our_own_child_is_left_to_its_owner():
    done = subprocess.run(
        [sys.executable, "-c", REAPING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("3", "")


class TestPolicy:
    def test_is_written_for_everybody_to_read(self, tmp_path):
        path = policies.write(tmp_path / "managed")
        assert json.loads(path.read_text()) == policies.POLICY
        assert path.stat().st_mode & 0o777 == 0o644

    def test_cannot_be_written_names_the_remedy(self, tmp_path):
        (tmp_path / "managed").write_text("")
        with pytest.raises(AgentError, match="FARMAGENT_POLICY_DIR"):
            policies.write(tmp_path / "managed")


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of its own needs root")
@pytest.mark.chrome
def test_the_policy_keeps_callers_from_files_and_settings(tmp_path):
    """In a mount namespace, so that the machine's own Chromium stays as it is."""
    script = Path(__file__).with_name("policy_probe.py")
    etc = tmp_path / "etc"
    etc.mkdir()
    mount = 'mount --make-rprivate / && mount --bind "$1" /etc/chromium && shift && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", str(etc), sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "file:///etc/passwd": "net::ERR_BLOCKED_BY_ADMINISTRATOR",
        "chrome://settings": "net::ERR_BLOCKED_BY_ADMINISTRATOR",
        "view-source:http://127.0.0.1:1/": "net::ERR_BLOCKED_BY_ADMINISTRATOR",
        "about:blank": "",
    }
