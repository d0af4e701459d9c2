"""SIGTERM and after: linger, refuse the new, serve the held, let sessions run to the drain limit."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest
from farmproxy.lifecycle import Signals, live


async def test_the_drain_from_start_to_end(new_farm, fakes):
    farm = new_farm(linger_s=0.3, drain_s=30)
    pod = fakes.Pod("a")
    await farm.add(pod)
    running = await farm.upgrade()
    await running.head()
    held = await farm.upgrade()
    await farm.until(lambda: farm.counts().held == 1)
    signals = Signals()
    signals.received()
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(live(farm.proxy, signals))
        await farm.until(lambda: farm.proxy.draining)
        lingering = await farm.upgrade()  # within the linger time: as usual
        await farm.until(lambda: farm.counts().held == 2)
        refused = None
        while refused is None:  # until the door has closed
            new = await farm.upgrade("/?hold=0.1")
            status, reason = await new.refusal()
            assert status == 503
            refused = reason if reason == "draining" else None
        discovery = await farm.get("/json/version")
        assert (await discovery.answer())[0] == 200
        running.send(b"still")
        assert await running.reader.readexactly(5) == b"still"
        running.close()
        for caller in (held, lingering):
            assert (await caller.head())[0] == 101
            caller.close()
        assert await asyncio.wait_for(life, 10) == 0
    assert [line["end"] for line in farm.log.of("lease-ended")][:2] == ["done", "done"]


async def test_the_drain_limit_cuts_sessions(new_farm, fakes):
    farm = new_farm(linger_s=0, drain_s=0.4)

    async def silent(pod, shake):
        shake.accept(pod)
        await shake.read_request()
        await shake.reader.read()

    await farm.add(fakes.Pod("a"), fakes.Pod("b", silent))
    first = await farm.upgrade()
    second = await farm.upgrade()
    await farm.until(lambda: farm.counts().leases == 2)
    held = await farm.upgrade()
    await farm.until(lambda: farm.counts().held == 1)
    signals = Signals()
    signals.received()
    assert await asyncio.wait_for(live(farm.proxy, signals), 10) == 0
    answers = [await asyncio.wait_for(caller.reader.read(), 5) for caller in (first, second)]
    assert sum(b"draining" in answer for answer in answers) == 1  # the one without an answer yet
    assert await held.refusal() == (503, "draining")
    await farm.idle()
    assert farm.count("farmproxy_leases_ended_total", reason="drained") == 2


async def test_a_second_signal_ends_it_at_once(new_farm, fakes):
    farm = new_farm(linger_s=30, drain_s=60)
    signals = Signals()
    signals.received()
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(live(farm.proxy, signals))
        await farm.until(lambda: farm.proxy.draining)
        signals.received()
        assert await asyncio.wait_for(life, 2) == 1


def _environment(door, admin):
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("FARMPROXY_")},
        "FARMPROXY_KUBE_API": "http://127.0.0.1:9",
        "FARMPROXY_DOOR": f"127.0.0.1:{door}",
        "FARMPROXY_ADMIN": f"127.0.0.1:{admin}",
        "FARMPROXY_LINGER_S": "0",
    }


def _free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_the_program_starts_drains_and_exits_0():
    environment = _environment(_free_port(), _free_port())
    with subprocess.Popen(
        [sys.executable, "-m", "farmproxy"], env=environment, stdout=subprocess.PIPE
    ) as process:
        for line in process.stdout:
            if b"door-open" in line:
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(20) == 0
    assert b'"event":"draining"' in rest


@pytest.mark.parametrize("which", ["door", "admin"])
def test_a_taken_port_is_exit_code_3(which):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        door, admin = (port, _free_port()) if which == "door" else (_free_port(), port)
        done = subprocess.run(
            [sys.executable, "-m", "farmproxy"],
            env=_environment(door, admin),
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 3
    assert b"cannot start" in done.stderr


def test_help_version_and_wrong_settings():
    run = [sys.executable, "-m", "farmproxy"]
    shown = subprocess.run([*run, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "FARMPROXY_HOLD_DEFAULT_S" in shown
    version = subprocess.run(
        [*run, "--version"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert version.startswith("farmproxy 0.")
    environment = {**_environment(1, 2), "FARMPROXY_STALL_S": "soon"}
    wrong = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "FARMPROXY_STALL_S" in wrong.stderr
    odd = subprocess.run([*run, "--colour"], capture_output=True, text=True, timeout=60, check=False)
    assert odd.returncode == 2
