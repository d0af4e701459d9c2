"""A Chrome and the next one, a Chrome and its agent: what one can read, write or leave that concerns the other."""

import asyncio
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from farmagent.chrome import cdp

pytestmark = [
    pytest.mark.chrome,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each Chrome a uid of its own"),
]

_spec = importlib.util.spec_from_file_location("farm_left", Path(__file__).with_name("leaks.py"))
_leaks = importlib.util.module_from_spec(_spec)
sys.modules["farm_left"] = _leaks
_spec.loader.exec_module(_leaks)

OTHER = "64321"
AS_ANOTHER = ("setpriv", "--reuid", OTHER, "--regid", OTHER, "--clear-groups")
MARK = "farm-left-behind"
ODD_MOUNT = 'mount --make-rprivate / && mount -t tmpfs -o mode=1777 none /srv && exec "$@"'
IN_A_POD = ("unshare", "--mount", "sh", "-c", ODD_MOUNT, "sh")
# The capabilities that docs/isolation.md asks for, and allowPrivilegeEscalation: false.
SIX = "-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid"
AS_IN_A_POD = ("setpriv", "--bounding-set", SIX, "--inh-caps=-all", "--no-new-privs")
NO_USER_NAMESPACES = (sys.executable, str(Path(__file__).with_name("no_user_namespaces.py")))
# A Chrome that leaves a process behind in a session of its own, as its crash handlers are.
WRAPPER = '#!/bin/sh\n( setsid sleep 1000 & )\nexec /usr/lib/chromium/chromium "$@"\n'


def found_by(pid, *words):
    """What ``find`` finds from the root of that process, all its mounts but the kernel's own."""
    kernel = ["(", "-path", "/proc", "-o", "-path", "/sys", "-o", "-path", "/var/lib/containers", ")"]
    done = subprocess.run(
        ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "find", "/", *kernel, "-prune", "-o", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return {line for line in done.stdout.splitlines() if line}


def uid_of(pid):
    return int(re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1])


def below(pid):
    """All processes that descend from this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        more = parents.get(todo.pop(), [])
        found += more
        todo += more
    return found


def chromes(agent):
    """Browser processes by their age, oldest first."""
    found = []
    for pid in below(agent.process.pid):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"--user-data-dir=" in command and b"--type=" not in command:
                found.append(pid)
    return sorted(found)


def uids_of_chromes(agent):
    """Oldest first; one on its way from root to its own is none yet."""
    found = []
    for pid in chromes(agent):
        with suppress(OSError):
            found.append(uid_of(pid))
    return list(dict.fromkeys(uid for uid in found if uid != 0))


async def download(browser, site, folder, name):
    """Whether Chrome could write there."""
    visitor = _leaks.Visitor(browser, site, None)
    with browser.events("") as events:
        await browser.send(
            "Browser.setDownloadBehavior",
            {"behavior": "allow", "eventsEnabled": True, "downloadPath": folder},
        )
        await visitor.run(f"location.href = '/download?name={name}'", await visitor.page())
        async with asyncio.timeout(60):
            async for event in events:
                state = event.params.get("state")
                if event.method == "Browser.downloadProgress" and state in ("completed", "canceled"):
                    return state == "completed"
    raise AssertionError("a subscription only ends by raising")


async def leave_files(agent, site, folders):
    """Download into each folder and into a new one in it, as one caller; returns those that took something."""
    async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
        paths = [f"{folder}{end}" for folder in sorted(folders) for end in ("", f"/{MARK}-new")]
        took = [path for path in paths if await download(browser, site, path, f"{MARK}.bin")]
        marked = found_by(agent.process.pid, "-name", f"{MARK}*", "-print")
        lease.leave()
    assert (await agent.until_free(lease.id))["end"] == "done"
    return took, marked


async def test_nothing_of_a_caller_is_left_on_any_mount_that_its_chrome_could_write_to(
    folder, running_agent, origin
):
    """With a mount that no setting names, as a pod's volumes may be."""
    async with running_agent(folder, *IN_A_POD) as agent, origin() as site:
        everywhere = found_by(agent.process.pid, "-type", "d", "-perm", "-0002", "-print")
        reachable = {path for path in everywhere if "pytest" not in path}
        assert {"/srv", "/tmp", "/dev/shm", "/var/tmp"} <= reachable
        owner = uid_of(chromes(agent)[0])
        took, marked = await leave_files(agent, site, reachable | {str(agent.work)})
        assert {"/srv", "/srv/farm-left-behind-new", "/tmp", "/dev/shm"} <= set(took), took
        assert marked, "the search is blind"
        assert str(agent.work) not in took, "a Chrome with a uid of its own writes into the work folder"
        await until(lambda: not found_by(agent.process.pid, "-name", f"{MARK}*", "-print"), "end of files")
        assert found_by(agent.process.pid, "-user", str(owner), "-print") == set()


async def test_with_a_shared_uid_the_work_volume_and_the_named_folders_are_clean_before_the_next(
    folder, running_agent, origin
):
    volume = folder / "work"
    volume.mkdir()
    volume.chmod(0o777)  # a volume's root: another's, open to all
    swept = Path(f"/tmp/{MARK}-swept")
    swept.mkdir(mode=0o777)
    swept.chmod(0o777)
    folder.chmod(0o711)
    try:
        async with (
            running_agent(folder, *AS_ANOTHER, FARMAGENT_SWEEP=str(swept)) as agent,
            origin() as site,
        ):
            took, marked = await leave_files(agent, site, {str(volume), str(swept)})
            assert set(took) == {f"{path}{end}" for path in (volume, swept) for end in ("", f"/{MARK}-new")}
            assert marked
            left = {path for top in (volume, swept) for path in top.rglob(f"{MARK}*")}
            assert left == set(), "the pod is free, and the next caller finds them"
    finally:
        shutil.rmtree(swept)


@pytest.mark.parametrize("through", [(), AS_IN_A_POD], ids=["root", "root of a pod"])
async def test_each_chrome_has_a_uid_that_neither_agent_nor_spare_has(folder, running_agent, through):
    async with running_agent(folder, *through, FARMAGENT_RECYCLE="spare") as agent:
        seen = uids_of_chromes(agent)
        for _ in range(2):
            async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
                await browser.send("Browser.getVersion")
                await until(lambda: len(uids_of_chromes(agent)) == 2, "the spare")
                main, spare = uids_of_chromes(agent)
                assert main == seen[-1]
                seen.append(spare)
                lease.leave()
            await agent.until_free(lease.id)
            await until(lambda: len(uids_of_chromes(agent)) == 1, "end of the old Chrome")
        assert len({*seen, 0}) == 4


async def test_a_chrome_reads_neither_the_key_nor_its_agent_nor_the_spare(folder, running_agent):
    key = folder / "key"
    key.write_text("secret")
    key.chmod(0o400)
    async with running_agent(folder, FARMAGENT_RECYCLE="spare", FARMAGENT_KEY_FILE=str(key)) as agent:
        pid = chromes(agent)[0]
        user = str(uid_of(pid))
        (profile,) = agent.work.glob("c-*/profile")
        for path in (key, f"/proc/{agent.process.pid}/environ", f"/proc/{agent.process.pid}/mem"):
            assert not can(user, "-r", path), path
        assert can(user, "-r", profile)
        assert not can(OTHER, "-x", profile), "another Chrome's uid enters this one's directories"
        assert not can(user, "-w", agent.work)


def can(uid, flag, path):
    command = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "head", "-c1", str(path)]
    if flag != "-r" or Path(path).is_dir():
        command = [*command[:6], "test", flag, str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("through", [(), AS_ANOTHER], ids=["own uid", "shared uid"])
async def test_a_process_in_a_session_of_its_own_ends_with_its_chrome(folder, running_agent, through):
    chrome = folder / "chrome"
    chrome.write_text(WRAPPER)
    chrome.chmod(0o755)
    if through:
        (folder / "work").mkdir()
        (folder / "work").chmod(0o777)
    async with running_agent(folder, *through, FARMAGENT_CHROME=str(chrome)) as agent:
        (first,) = sleepers(agent)
        async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
            await browser.send("Browser.getVersion")
            lease.leave()
        await agent.until_free(lease.id)
        await until(lambda: first not in sleepers(agent), "end of the old one's")
        assert len(sleepers(agent)) == 1


def test_a_process_of_the_same_uid_that_another_agent_started_is_left_alone():
    """Seen where a farm on kind stood beside a local one: an agent of the machine sees the processes of every pod."""
    uid = 60999
    code = (
        "import subprocess; from farmagent.chrome.uids import ChromeUser, Uids\n"
        f"own = subprocess.Popen(['sleep', '1000'], user={uid}, group={uid}); user = ChromeUser({uid}, {uid})\n"
        f"left = Uids(range({uid}, {uid + 1})).end_processes(user); print(left, own.wait(30))"
    )
    with subprocess.Popen(["sleep", "1000"], user=uid, group=uid) as others:
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
            )
            assert done.stdout.strip() == "[] -9"
            assert others.poll() is None
        finally:
            others.kill()


def sleepers(agent):
    found = []
    for pid in below(agent.process.pid):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x001000\0":
                found.append(pid)
    return found


async def until(condition, what):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.05)


def run_agent(folder, *through, **settings):
    env = {"FARMAGENT_LISTEN": "127.0.0.1:0", "FARMAGENT_WORK_DIR": str(folder / "work"), **settings}
    return subprocess.run(
        [*through, sys.executable, "-m", "farmagent"],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_spare_under_a_shared_uid_is_refused_at_start(folder):
    (folder / "work").mkdir()
    (folder / "work").chmod(0o777)
    done = run_agent(folder, *AS_ANOTHER, FARMAGENT_RECYCLE="spare")
    assert done.returncode == 1
    assert "FARMAGENT_RECYCLE=spare" in done.stderr
    assert "Set FARMAGENT_RECYCLE=fresh" in done.stderr


def test_a_work_folder_in_a_swept_one_is_refused_at_start(folder):
    done = run_agent(folder, FARMAGENT_SWEEP=str(folder))
    assert done.returncode == 2
    assert "lies in the swept folder" in done.stderr


async def said(agent, path):
    host, port = agent.address
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
    writer.close()
    return body.decode()


async def test_how_chrome_is_isolated_is_said(folder, running_agent):
    async with running_agent(folder) as agent:
        (line,) = [event for event in agent.events() if event["event"] == "isolation"]
        told = json.loads(await said(agent, "/readyz?verbose"))["isolation"]
        assert told == {"uid": "own", "sandbox": "on", "detail": ""}
        assert told.items() <= line.items()
        metrics = await said(agent, "/metrics")
        for what in ("uid", "sandbox"):
            assert f'farmagent_isolated{{what="{what}"}} 1.0' in metrics
        assert b"--no-sandbox" not in Path(f"/proc/{chromes(agent)[0]}/cmdline").read_bytes()


async def test_where_chrome_cannot_have_its_sandbox_it_goes_without_and_that_is_said(folder, running_agent):
    async with running_agent(folder, *NO_USER_NAMESPACES) as agent:
        told = json.loads(await said(agent, "/readyz?verbose"))["isolation"]
        assert (told["uid"], told["sandbox"]) == ("own", "off")
        assert "No usable sandbox" in told["detail"]
        last = [event for event in agent.events() if event["event"] == "isolation"][-1]
        assert told.items() <= last.items()
        assert 'farmagent_isolated{what="sandbox"} 0.0' in await said(agent, "/metrics")
        async with agent.lease() as lease, cdp.connect(lease.ws_url, timeout_s=30) as browser:
            assert await browser.send("Browser.getVersion")


def test_a_sandbox_that_must_be_on_and_cannot_is_no_chrome(folder):
    """Chrome's own words say why; nothing is started without."""
    process = subprocess.Popen(
        [*NO_USER_NAMESPACES, sys.executable, "-m", "farmagent"],
        env=os.environ
        | {
            "FARMAGENT_LISTEN": "127.0.0.1:0",
            "FARMAGENT_WORK_DIR": str(folder / "w"),
            "FARMAGENT_SANDBOX": "on",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines = (json.loads(line) for line in process.stdout if line.startswith("{"))
        seen = {}
        for line in lines:
            seen[line["event"]] = line
            if line["event"] == "broken":
                break
        assert "No usable sandbox" in seen["chrome-ended"]["detail"]
        assert "chrome-started" not in seen
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def test_what_a_killed_agent_s_chrome_left_is_gone_with_the_next_agent(folder, running_agent, origin):
    left = Path(f"/tmp/{MARK}-killed")
    async with (
        running_agent(folder) as agent,
        origin() as site,
        agent.lease() as lease,
        cdp.connect(lease.ws_url, timeout_s=30) as browser,
    ):
        assert await download(browser, site, str(left), "file.bin")
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait()
    assert (left / "file.bin").exists()
    async with running_agent(folder):
        assert not left.exists()
