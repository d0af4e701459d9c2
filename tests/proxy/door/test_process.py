"""The proxy as a process of its own, with what only a process can meet."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.request

import pytest


@pytest.fixture
def process():
    """A proxy without an API server, its door and admin addresses, and its log as far as it was read to find them."""
    ports = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            sock = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(sock.getsockname()[1])
    told = {
        "FARMPROXY_KUBE_API": "http://127.0.0.1:1",
        "FARMPROXY_DOOR": f"127.0.0.1:{ports[0]}",
        "FARMPROXY_ADMIN": f"127.0.0.1:{ports[1]}",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FARMPROXY_")}
    command = [sys.executable, "-m", "farmproxy"]
    with subprocess.Popen(command, env={**inherited, **told}, stdout=subprocess.PIPE) as proxy:
        while json.loads(proxy.stdout.readline())["event"] != "door-open":
            pass
        yield proxy, *ports
        proxy.kill()


def test_a_proxy_whose_log_nobody_reads_serves_on(process):
    _, door, admin = process
    for _ in range(1500):  # a line each, into a pipe of 64 KiB
        with socket.create_connection(("127.0.0.1", door), timeout=20) as sock:
            sock.sendall(b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 404 ")
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/livez", timeout=20) as answer:
        assert answer.status == 200


def test_a_proxy_whose_logs_reader_is_gone_serves_on_and_counts_its_lines(process):
    proxy, door, admin = process
    proxy.stdout.close()
    with socket.create_connection(("127.0.0.1", door), timeout=20) as sock:
        sock.sendall(b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 404 ")
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    dropped = next(
        line for line in text.splitlines() if line.startswith("farmproxy_log_lines_dropped_total ")
    )
    assert float(dropped.split()[1]) >= 1
