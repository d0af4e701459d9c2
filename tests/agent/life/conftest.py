"""The agent as a process of its own with a real Chromium, talked to over raw sockets."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

LIMIT_S = 60.0  # generous: a start takes a second, on a machine that is shared several


def is_chrome(pid):
    """A browser process; zygotes that outlive theirs for a moment become the agent's children too."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"--user-data-dir=" in command and b"--type=" not in command and b"crashpad" not in command
    return False


def state_of(pid):
    """The letter of /proc/PID/stat and the parent; None for a process that is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    return None


def processes():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


class LivingAgent:
    def __init__(self, folder, **env):
        self.work = Path(folder, "work")
        settings = {
            "LISTEN": "127.0.0.1:0",
            "POD": "farm/browsers-1/uid-1",
            "WORK_DIR": str(self.work),
            **env,
        }
        self.log_path = Path(folder, "log")
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "farmagent"],
                env=os.environ | {f"FARMAGENT_{key}": value for key, value in settings.items()},
                stdout=log,
                stderr=log,
            )
        address = self.event("listening")["address"]
        self.host, _, port = address.rpartition(":")
        self.port = int(port)

    @property
    def pid(self):
        return self.process.pid

    def events(self, name=None):
        lines = self.log_path.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in found if name in (None, event["event"])]

    def event(self, name, *, after=0):
        """The event number ``after`` of this name, once it is there."""
        return self.until(lambda: self.events(name)[after:], f"{name} in the log")[0]

    def until(self, condition, what):
        end = time.monotonic() + LIMIT_S
        while not (value := condition()):
            assert time.monotonic() < end, f"no {what}; log:\n{self.log_path.read_text()}"
            assert self.process.poll() is None or "gone" in what or "exit" in what, self.log_path.read_text()
            time.sleep(0.01)
        return value

    def ask(self, target):
        """Status and JSON of one GET."""
        with socket.create_connection((self.host, self.port), LIMIT_S) as sock:
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())
            head, _, body = read_all(sock).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(body)

    def until_free(self):
        assert self.ask(f"/readyz?wait={LIMIT_S}")[0] == 200, self.log_path.read_text()

    def lease(self, lease="L1", *, kind="Farm-Lease"):
        sock = socket.create_connection((self.host, self.port), LIMIT_S)
        sock.sendall(
            f"GET /lease HTTP/1.1\r\nHost: {self.host}\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\n"
            f"{kind}: {lease}\r\n\r\n".encode()
        )
        head = read_head(sock)
        while head.startswith(b"HTTP/1.1 102"):
            head = read_head(sock)
        assert head.startswith(b"HTTP/1.1 101"), head
        return sock

    def asked(self, lease):
        """The answer to a question for a lease: its status, its JSON where it was refused."""
        with socket.create_connection((self.host, self.port), LIMIT_S) as sock:
            sock.sendall(
                f"GET /lease HTTP/1.1\r\nHost: {self.host}\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\n"
                f"Farm-Lease: {lease}\r\n\r\n".encode()
            )
            head = read_head(sock)
            while head.startswith(b"HTTP/1.1 102"):
                head = read_head(sock)
            status = int(head.split(b" ")[1])
            return status, json.loads(sock.recv(4096)) if status != 101 else None

    def session(self, lease="L1"):
        """A lease whose caller has Chrome's browser socket."""
        sock = self.lease(lease)
        sock.sendall(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert read_head(sock).startswith(b"HTTP/1.1 101")
        return sock

    def chromes(self):
        """Browser processes: children of the agent that are a Chrome (no zygote, no renderer)."""
        return [pid for pid in processes() if (state_of(pid) or ("", 0))[1] == self.pid and is_chrome(pid)]

    def tree(self):
        """Every process of any Chrome of this agent: its directory stands in their command lines."""
        mark = str(self.work).encode()
        found = []
        for pid in processes():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def zombies(self):
        return [pid for pid in processes() if (state_of(pid) or ("", 0)) == ("Z", self.pid)]

    def term(self):
        self.process.send_signal(signal.SIGTERM)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.until(lambda: not self.tree(), "gone processes")


def read_head(sock):
    """Byte by byte, so that nothing after the head is taken."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        assert byte, f"closed after {data!r}"
        data += byte
    return data


def read_all(sock):
    sock.settimeout(LIMIT_S)
    data = b""
    with sock, contextlib.suppress(ConnectionResetError):
        while more := sock.recv(65536):
            data += more
    return data


def send(sock, identity, method, params=None):
    data = json.dumps({"id": identity, "method": method, "params": params or {}}).encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
    sock.sendall(b"\x81" + size + b"\0\0\0\0" + data)


@contextlib.contextmanager
def living_agent(**env):
    with tempfile.TemporaryDirectory(prefix="fa-") as folder:
        Path(folder).chmod(0o711)  # Chrome's own uid must pass
        agent = LivingAgent(folder, **env)
        try:
            yield agent
        finally:
            agent.end()


@pytest.fixture
def agent_with():
    """``with agent_with(RECYCLE="spare") as agent``: settings without FARMAGENT_."""
    return living_agent


@pytest.fixture(scope="module")
def agent():
    """One agent for all tests of a module that leave it free; a heartbeat quick enough to see a freeze."""
    with living_agent(HEARTBEAT_S="0.5") as living:
        living.until_free()
        yield living


@pytest.fixture
def cdp_send():
    return send


@pytest.fixture
def all_of():
    return read_all
