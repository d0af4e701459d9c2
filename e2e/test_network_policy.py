"""Who reaches whom inside the cluster, where its network enforces NetworkPolicy."""

import pytest

pytestmark = pytest.mark.timeout(300, func_only=True)
PYTHON = "/opt/farm/bin/python"
DIAL = """
import socket
try:
    socket.create_connection(({host!r}, {port}), 3).close()
    print("open")
except OSError:
    print("closed")
"""
RESOLVE = "import socket; socket.getaddrinfo('kubernetes.default.svc.cluster.local', 443); print('known')"


@pytest.fixture(scope="module", autouse=True)
def _only_where_enforced(cluster) -> None:
    if cluster.shape.own_network:
        pytest.skip(
            "the bridge of a source-built cluster enforces no NetworkPolicy; the official node image does"
        )


def named(cluster, name: str) -> list[dict]:
    return cluster.kubectl.get("pods", "-n", "farm", "-l", f"app.kubernetes.io/name={name}")


def says(cluster, pod: dict, script: str) -> str:
    return cluster.kubectl("exec", "-n", "farm", pod["metadata"]["name"], "--", PYTHON, "-c", script).strip()


def dial(cluster, pod: dict, host: str, port: int) -> str:
    return says(cluster, pod, DIAL.format(host=host, port=port))


def test_the_proxy_reaches_every_browser_pod(cluster):
    proxy, browsers = named(cluster, "proxy")[0], named(cluster, "browser")
    assert browsers
    assert {dial(cluster, proxy, pod["status"]["podIP"], 9222) for pod in browsers} == {"open"}


@pytest.mark.parametrize("target", ["another browser", "the proxy's admin port", "the API server"])
def test_a_browser_pod_reaches_nothing_private(cluster, target):
    mine, other = named(cluster, "browser")[:2]
    where = {
        "another browser": (other["status"]["podIP"], 9222),
        "the proxy's admin port": (named(cluster, "proxy")[0]["status"]["podIP"], 9223),
        "the API server": ("10.96.0.1", 443),
    }[target]
    assert dial(cluster, mine, *where) == "closed"


def test_a_browser_pod_resolves_names(cluster):
    assert says(cluster, named(cluster, "browser")[0], RESOLVE) == "known"
