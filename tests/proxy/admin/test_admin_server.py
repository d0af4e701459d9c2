"""The admin port over real sockets: probes, metrics, status, page; it reads and never changes."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field

import aiohttp
import pytest
from farmproxy import __version__
from farmproxy.admin.page import PAGE
from farmproxy.admin.server import admin_server
from farmproxy.config.parsers import HostPort
from farmproxy.core.snapshots import HeldView, LeaseView, PodView, PoolView
from farmproxy.observe.metrics import Metrics

LABEL = "<script>alert(1)</script>"


@dataclass
class View:
    """A proxy at work."""

    services: dict = field(default_factory=lambda: {"default": "browsers"})
    listed: bool = True
    door_open: bool = True
    draining: bool = False

    def watch_age_s(self):
        return 1.23456

    def snapshot(self):
        pod = PodView("U1", "browsers-1", "[fd00::1]:9222", "leased", False, "L1", 0, 0.0)
        held = HeldView("C2", LABEL, 1.5, 298.5, 2)
        lease = LeaseView("L1", "job é", "browsers-1", 3.0, 897.0)
        return {"default": PoolView(2, [pod], [held], [lease])}

    def metrics_text(self):
        return Metrics(["default"]).text()


@pytest.fixture
def view():
    return View()


@pytest.fixture
async def ask(view):
    """``await ask(path)`` gives (status, headers, body)."""
    async with (
        admin_server(view, HostPort("127.0.0.1", 0)) as address,
        aiohttp.ClientSession(f"http://{address}") as session,
    ):

        async def ask(path, method="GET", **more):
            async with session.request(method, path, allow_redirects=False, **more) as response:
                return response.status, response.headers, await response.read()

        yield ask


async def test_livez_is_the_process_alone(view, ask):
    view.listed = view.door_open = False
    view.draining = True
    assert (await ask("/livez"))[::2] == (200, b"ok\n")


async def test_readyz_when_ready(ask):
    assert (await ask("/readyz"))[::2] == (200, b"ok\n")
    status, _, body = await ask("/readyz?verbose")
    assert status == 200
    assert body.decode().splitlines() == ["[+]listed ok", "[+]door-open ok", "[+]not-draining ok", "ready"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"listed": False}, "[-]listed failed: the EndpointSlices were not listed yet"),
        ({"door_open": False}, "[-]door-open failed: the door is closed"),
        ({"draining": True}, "[-]not-draining failed: the proxy drains"),
    ],
)
async def test_readyz_fails_and_says_why(view, ask, change, line):
    for name, value in change.items():
        setattr(view, name, value)
    status, _, body = await ask("/readyz")
    assert status == 503
    assert line in body.decode().splitlines()


async def test_metrics_are_prometheus_text(ask):
    status, headers, body = await ask("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b'farmproxy_demand{pool="default"} 0.0' in body


async def test_status_has_the_contracts_shape(ask):
    status, headers, body = await ask("/status")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {
        "version": __version__,
        "draining": False,
        "watch_age_s": 1.235,
        "pools": {
            "default": {
                "service": "browsers",
                "demand": 2,
                "pods": [
                    {
                        "uid": "U1",
                        "name": "browsers-1",
                        "address": "[fd00::1]:9222",
                        "state": "leased",
                        "terminating": False,
                        "lease": "L1",
                        "faults": 0,
                        "set_aside_s": 0.0,
                    }
                ],
                "held": [{"id": "C2", "label": LABEL, "waited_s": 1.5, "left_s": 298.5, "dials": 2}],
                "leases": [
                    {"id": "L1", "label": "job é", "pod": "browsers-1", "age_s": 3.0, "left_s": 897.0}
                ],
            }
        },
    }


async def test_the_page_runs_its_own_script_only(ask):
    status, headers, body = await ask("/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[source] == f"'sha256-{digest}'"
    assert b"http://" not in body
    assert b"https://" not in body


def test_labels_reach_the_page_as_text_only():
    assert not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", PAGE)


@pytest.mark.parametrize("path", ["/nope", "/status/", "/livez/x", "/json/version", "/leases"])
async def test_another_path_is_404(ask, path):
    assert (await ask(path))[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/status", "/livez"])
async def test_only_reading(ask, method, path):
    status, headers, _ = await ask(path, method, data=b"x" * 5000)
    assert status == 405
    assert "GET" in headers["Allow"]


async def test_head_is_get_without_a_body(ask):
    status, headers, body = await ask("/status", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 0


async def test_any_host_may_ask_and_nothing_is_stored(ask):
    for path in ("/status", "/nope"):
        _, headers, _ = await ask(path, headers={"Host": "farm.example:1"})
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers


async def test_a_taken_port_is_an_oserror(view):
    async with admin_server(view, HostPort("127.0.0.1", 0)) as address:
        with pytest.raises(OSError, match="address already in use"):
            async with admin_server(view, address):
                pass
