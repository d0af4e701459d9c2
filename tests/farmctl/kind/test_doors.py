import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind.doors import HostReach


@contextmanager
def door(answers):
    """A door that answers (method, path without query) as told, and lists what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            key = (self.command, self.path.partition("?")[0])
            asked.append((self.command, self.path))
            status, body = answers[key]
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        yield HostReach(address, address), asked
        server.shutdown()
        thread.join()


def test_lease_is_taken_and_given_back():  # field case 37: end to end, not by kind's exit code
    with door({("POST", "/leases"): (201, {"id": "01M"}), ("DELETE", "/leases/01M"): (204, b"")}) as (
        reach,
        asked,
    ):
        assert reach.lease() == "leased"
    assert [method for method, _ in asked] == ["POST", "DELETE"]
    assert "hold=0" in asked[0][1]  # nobody's place in the queue is taken


def test_refusal_is_an_answer():
    refusal = {"reason": "no-free-pod", "detail": "all in use", "retry_after_s": 1}
    with door({("POST", "/leases"): (503, refusal)}) as (reach, _):
        assert reach.lease() == "no-free-pod"


def test_foreign_server_on_the_port_is_not_taken_for_the_farm():
    with (
        door({("POST", "/leases"): (404, b"<html>not found")}) as (reach, _),
        pytest.raises(StageError, match="no answer of the farm"),
    ):
        reach.lease()


def test_dead_port_is_told():
    with pytest.raises(StageError, match="does not answer") as caught:
        HostReach("127.0.0.1:9", "127.0.0.1:9").lease()
    assert caught.value.hint


def test_status_is_read(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # of no matter for this host's own loopback
    with door({("GET", "/status"): (200, {"pools": {}})}) as (reach, _):
        assert reach.status() == {"pools": {}}
