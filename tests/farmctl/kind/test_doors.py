import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind.api.doors import ClusterReach, HostReach
from farmctl.testbeds.kind.cluster.kubectl import Kubectl
from farmctl.testbeds.kind.install import rollout_wait


@contextmanager
def door(answers):
    """A door that answers (method, path without query) as told, and lists what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            key = (self.command, self.path.partition("?")[0])
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
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


def test_lease_is_taken_and_given_back():  # end to end, not by kind's exit code
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


@pytest.mark.parametrize("reason", ["origin", "unauthorized", "draining", "descriptors", "queue-full"])
def test_any_other_refusal_is_a_door_that_does_not_serve(reason):
    refusal = {"reason": reason, "detail": "why", "retry_after_s": None}
    with door({("POST", "/leases"): (403, refusal)}) as (reach, _), pytest.raises(StageError, match=reason):
        reach.lease()
    with (
        door({("POST", "/leases"): (403, refusal)}) as (reach, _),
        pytest.raises(StageError, match=f"gives a lease: the door refuses: {reason}: why"),
    ):
        rollout_wait.wait_for_lease(reach, timeout_s=0)


def test_a_page_that_a_pod_does_not_render_is_answered_by_why():
    refusal = {
        "reason": "page-failed",
        "detail": "net::ERR_NAME_NOT_RESOLVED at http://kubernetes.default.svc/",
    }
    with door({("POST", "/render"): (422, refusal)}) as (reach, _):
        assert reach.page("http://kubernetes.default.svc/").startswith(
            "page-failed: net::ERR_NAME_NOT_RESOLVED"
        )
    with door({("POST", "/render"): (200, b"text")}) as (reach, _):
        assert reach.page("http://kubernetes.default.svc/") == "200"


FORWARDING = """#!/bin/sh
echo "$@" > {asked}
echo "Forwarding from 127.0.0.1:{port} -> 9222"
exec sleep 60
"""


def forwarding(tmp_path, script):
    program = tmp_path / "kubectl"
    program.write_text(script)
    program.chmod(0o755)
    return Kubectl(program, "/k", "theirs")


def test_an_existing_clusters_door_is_reached_by_port_forward_with_its_token(tmp_path):
    """Never by the API server's proxy: the door would see the API server's name, and pods may be out of its reach."""
    leases = {("POST", "/leases"): (201, {"id": "01M"}), ("DELETE", "/leases/01M"): (204, b"")}
    with door(leases) as (there, asked):
        asked_kubectl = tmp_path / "asked"
        port = there.door.rpartition(":")[2]
        kubectl = forwarding(tmp_path, FORWARDING.format(asked=asked_kubectl, port=port))
        assert ClusterReach(kubectl, "farm", token="t0ken").lease() == "leased"
    assert "port-forward -n farm service/proxy :9222" in asked_kubectl.read_text()
    assert [method for method, _ in asked] == ["POST", "DELETE"]


def test_a_forward_that_fails_is_told_in_kubectls_words(tmp_path):
    kubectl = forwarding(tmp_path, "#!/bin/sh\necho 'error: services \"proxy\" not found' >&2; exit 1\n")
    with pytest.raises(
        StageError, match='no way to the service proxy in farm: error: services "proxy" not found'
    ):
        ClusterReach(kubectl, "farm").lease()


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
