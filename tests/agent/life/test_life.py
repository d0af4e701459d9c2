"""A real Chromium under a real agent: its crash in every state, its freeze, its end, and what is left after."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from farmagent.chrome import proctimes
from farmagent.settings import CHROME_UIDS
from websockets.sync.client import connect

pytestmark = [pytest.mark.chrome, pytest.mark.timeout(180)]


def ended(agent, lease):
    agent.until_free()
    return agent.ask(f"/readyz?lease={lease}")[1]["end"]


def only_chrome(agent):
    agent.until_free()
    (pid,) = agent.chromes()
    return pid


def another_chrome(agent, *old):
    """The process id of the Chrome that follows, as soon as there is one."""
    return agent.until(lambda: [new for new in agent.chromes() if new not in old], "another Chrome")[0]


def listening(pid):
    """The IPv4 addresses on which a process listens."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            targets.append(str(link.readlink()))
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in targets}


class TestOneAgent:
    def test_chrome_has_its_own_uid_its_sandbox_and_nothing_outside_its_directory(self, agent):
        pid = only_chrome(agent)
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if os.geteuid() == 0:
            assert Path(f"/proc/{pid}").stat().st_uid in CHROME_UIDS
            assert b"--no-sandbox" not in command
        assert os.getsid(pid) == pid
        (root,) = agent.work.glob("c-*")
        assert (root / "home" / ".config").exists()
        assert list((root / "t").glob("org.chromium.*"))

    def test_chrome_listens_on_loopback_and_the_agent_reaches_it(self, agent):
        addresses = listening(only_chrome(agent))
        assert addresses == {"0100007F"}  # 127.0.0.1, as the kernel writes it
        assert agent.ask("/json/version")[0] == 200

    def test_killed_while_free(self, agent):
        pid = only_chrome(agent)
        os.kill(pid, signal.SIGKILL)
        assert another_chrome(agent, pid) == only_chrome(agent)
        assert agent.ask("/livez")[0] == 200

    def test_killed_while_starting(self, agent):
        pid = only_chrome(agent)
        os.kill(pid, signal.SIGKILL)
        second = another_chrome(agent, pid)
        os.kill(second, signal.SIGKILL)
        assert another_chrome(agent, pid, second) == only_chrome(agent)

    def test_killed_under_a_silent_caller(self, agent, all_of):
        sock = agent.session("crash")
        os.kill(agent.chromes()[0], signal.SIGKILL)
        all_of(sock)
        assert ended(agent, "crash") == "browser-died"

    def test_killed_while_recycling(self, agent):
        pid = only_chrome(agent)
        agent.session("recycle").close()
        second = another_chrome(agent, pid)
        os.kill(second, signal.SIGKILL)
        assert ended(agent, "recycle") == "done"

    def test_frozen_under_a_caller(self, agent, all_of):
        sock = agent.session("frozen")
        os.kill(agent.chromes()[0], signal.SIGSTOP)
        all_of(sock)
        assert ended(agent, "frozen") == "browser-died"

    def test_frozen_while_free_a_caller_is_sent_on_and_the_pod_heals(self, agent_with):
        """With a heartbeat that sees it later than the handshake does."""
        with agent_with(HEARTBEAT_S="1.5") as agent:
            pid = only_chrome(agent)
            os.kill(pid, signal.SIGSTOP)
            assert agent.asked("stopped") == (409, {"reason": "starting"})
            assert agent.asked("stopped-too") == (409, {"reason": "starting"})
            assert another_chrome(agent, pid) == only_chrome(agent)
            agent.lease("next").close()

    def test_frozen_and_thawed_it_is_the_same_chrome(self, agent_with):
        with agent_with(HEARTBEAT_S="10") as agent:
            pid = only_chrome(agent)
            os.kill(pid, signal.SIGSTOP)
            assert agent.asked("stopped") == (409, {"reason": "starting"})
            os.kill(pid, signal.SIGCONT)
            assert only_chrome(agent) == pid

    def test_a_chrome_that_works_is_told_from_one_that_is_stopped(self, agent):
        pid = only_chrome(agent)
        assert proctimes.worked_s(pid) > 0
        os.kill(pid, signal.SIGSTOP)
        agent.until(lambda: proctimes.worked_s(pid) is None, "stopped Chrome")
        os.kill(pid, signal.SIGCONT)
        agent.until(lambda: proctimes.worked_s(pid), "Chrome that goes on")
        os.kill(pid, signal.SIGKILL)
        agent.until(lambda: proctimes.worked_s(pid) is None, "end of Chrome")

    def test_forty_mib_from_a_client_that_offers_compression_harm_nobody(self, agent_with):
        with agent_with() as agent:
            agent.until_free()
            with connect(
                "ws://farm/devtools/browser/farm", sock=agent.lease("large"), max_size=None
            ) as caller:
                assert caller.protocol.extensions == []
                params = {"browserContextId": "x" * 40 * 1024 * 1024}
                caller.send(json.dumps({"id": 1, "method": "Target.disposeBrowserContext", "params": params}))
                assert json.loads(caller.recv(60))["error"]
            assert ended(agent, "large") == "done"
            assert [event for event in agent.events("chrome-ended") if "frozen" in event["detail"]] == []

    def test_one_blank_page_is_there_at_every_connect(self, agent):
        for number in range(2):
            agent.until_free()
            with connect("ws://farm/devtools/browser/farm", sock=agent.lease(f"page{number}")) as caller:
                caller.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
                targets = json.loads(caller.recv(60))["result"]["targetInfos"]
                assert [one["url"] for one in targets if one["type"] == "page"] == ["about:blank"]

    def test_closed_by_the_caller(self, agent, cdp_send, all_of):
        agent.until_free()
        for number in range(3):
            sock = agent.session(f"close{number}")
            cdp_send(sock, 1, "Browser.close")
            assert b'{"id":1,"result":{}}' in all_of(sock)
            assert ended(agent, f"close{number}") == "done"

    def test_an_unused_lease_keeps_its_chrome(self, agent):
        pid = only_chrome(agent)
        agent.lease("unused").close()
        assert only_chrome(agent) == pid

    def test_no_zombies_and_nothing_left_of_the_chromes_before(self, agent):
        for number in range(4):
            agent.session(f"zombie{number}").close()
            agent.until_free()
        agent.until(lambda: not agent.zombies(), "end of zombies")
        agent.until(lambda: len(list(agent.work.glob("c-*"))) == 1, "removal of old directories")
        (root,) = agent.work.glob("c-*")
        for pid in agent.tree():
            assert str(root).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


class TestEnd:
    def test_sigterm_while_free_leaves_nothing(self, agent_with):
        with agent_with() as agent:
            agent.until_free()
            agent.term()
            assert agent.process.wait(30) == 0
            agent.until(lambda: not agent.tree(), "gone processes")
            assert not agent.work.exists()
            names = [event["event"] for event in agent.events()]
            assert "draining" in names
            assert names[-1] == "ended"

    def test_sigterm_in_a_session_waits_for_its_end(self, agent_with, cdp_send):
        with agent_with() as agent:
            agent.until_free()
            sock = agent.session("last")
            agent.term()
            agent.event("draining")
            status, body = agent.ask("/readyz?wait=60")
            assert (status, body["reason"]) == (503, "draining")
            cdp_send(sock, 1, "Browser.getVersion")
            assert sock.recv(65536)
            sock.close()
            assert agent.process.wait(30) == 0
            assert agent.events("lease-ended")[0]["end"] == "done"

    def test_sigkill_takes_chrome_along(self, agent_with):
        with agent_with() as agent:
            agent.until_free()
            agent.process.kill()
            agent.process.wait()
            agent.until(lambda: not agent.tree(), "gone processes")

    def test_the_next_agent_wipes_what_a_killed_one_left(self, agent_with):
        with agent_with() as first:
            first.until_free()
            first.process.kill()
            first.process.wait()
            (left,) = first.work.glob("c-*")
            with agent_with(WORK_DIR=str(first.work)) as second:
                second.until_free()
                assert not left.exists()
                second.term()
                assert second.process.wait(30) == 0


def test_a_spare_swaps_in_at_the_usual_priority(agent_with):
    with agent_with(RECYCLE="spare", SPARE_AFTER_S="0.1") as agent:
        agent.until_free()
        sock = agent.session("L1")
        agent.event("chrome-started", after=1)
        old, spare = agent.chromes()
        before = os.getpriority(os.PRIO_PROCESS, spare)
        sock.close()
        agent.until_free()
        assert agent.chromes() == [spare] or spare in agent.chromes()
        assert os.getpriority(os.PRIO_PROCESS, spare) == 0
        assert before == (15 if os.geteuid() == 0 else 0)
        agent.until(lambda: agent.chromes() == [spare], "end of the old Chrome")
        assert old != spare


def test_a_browser_that_cannot_start_is_told_and_retried(agent_with):
    with agent_with(CHROME="/bin/false", SANDBOX="off") as agent:
        event = agent.event("chrome-ended")
        assert event["returncode"] == 1
        agent.event("broken")
        assert agent.ask("/livez")[0] == 500
        agent.term()
        assert agent.process.wait(30) == 0
