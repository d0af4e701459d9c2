"""`farmctl up --context`, into a namespace of a cluster that stands: here that of the farm's own, as a guest."""

import json
import os
import subprocess
import sys

import pytest

from farmctl.testbeds.kind.cluster import waiting

pytestmark = [pytest.mark.timeout(900, func_only=True), pytest.mark.usefixtures("only_on_kind")]
GUEST, TOKEN = "guest", "t0ken-of-a-guest"
NAMES = (GUEST, f"{GUEST}.svc", f"{GUEST}.svc.cluster.local")
ASK = """
import urllib.error, urllib.request
for name in {names}:
    try:
        print(urllib.request.urlopen(f"http://{{name}}:9222/json/version{query}", timeout=10).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.fixture(scope="module")
def guest(cluster, tmp_path_factory):
    """The environment of a farmctl with a farm of its own, in a namespace that enforces the level restricted."""
    folder = tmp_path_factory.mktemp("guest")
    (folder / "kubectl").symlink_to(cluster.kubectl.program)
    node = cluster.nodes()[-1].name
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": GUEST, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    # somebody else's cluster has nodes for everything
    cluster.kubectl("taint", "node", node, "farm.pool-")
    yield {**os.environ, "FARMCTL_STATE": str(folder / "state"), "PATH": f"{folder}:{os.environ['PATH']}"}
    cluster.kubectl("taint", "node", node, "farm.pool=spot:NoSchedule")
    cluster.kubectl("delete", "namespace", GUEST, "--wait=false")


def farmctl(guest, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "farmctl", *words],
        env=guest,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_a_farm_in_a_namespace_of_somebody_else_serves_callers_inside_and_goes_without_a_trace(
    cluster, guest, tmp_path
):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"guest:{TOKEN}\n")
    there = ("--context", cluster.kubectl.context, "--kubeconfig", cluster.kubectl.kubeconfig)
    up = farmctl(guest, "up", *there, "--namespace", GUEST, "--pods", "1", "--tokens", str(tokens))
    try:
        assert up.returncode == 0, up.stderr
        assert "enforces the level restricted" in up.stderr
        assert "a pod resolves names" in up.stderr
        (pod,) = cluster.kubectl.get("pods", "-n", GUEST, "-l", "app.kubernetes.io/name=browser")
        names = ["proxy", *(f"proxy.{rest}" for rest in NAMES)]
        for query, answer in ((f"?token={TOKEN}", "200"), ("", "401")):
            script = ASK.format(names=names, query=query)
            words = ("exec", "-n", GUEST, pod["metadata"]["name"], "--", "/opt/farm/bin/python", "-c", script)

            def answered(words=words, answer=answer) -> bool:
                return cluster.kubectl(*words).split() == [answer] * len(names)

            # The cluster's name server and its packet filters learn of a new Service in their own time.
            waiting.wait_for(answered, f"each name is answered by {answer}", timeout_s=120)
        status = farmctl(guest, "status", "-o", "json")
        assert status.returncode == 0, status.stderr
    finally:
        down = farmctl(guest, "down")
    assert down.returncode == 0, down.stderr
    assert cluster.kubectl.get("namespace", GUEST), "it was there before"
    assert not cluster.kubectl.get("deployments,services,secrets,networkpolicies", "-n", GUEST)
