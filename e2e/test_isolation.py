"""What of a pod is isolated from what, seen from its node: the recommended mode, and what is left of it in the others."""

import json
from dataclasses import dataclass

import pytest

from farmctl.testbeds.kind import up
from farmctl.testbeds.kind.cluster import waiting
from farmctl.testbeds.kind.cluster.nodes import sh
from farmctl.testbeds.kind.cluster.state import KindFolder
from farmctl.testbeds.kind.install.manifests import parsed, render

pytestmark = [pytest.mark.timeout(600, func_only=True), pytest.mark.usefixtures("only_on_kind")]
PYTHON = "/opt/farm/bin/python"
# One line a process of the container: what its status says, its namespaces, its command.
PROCESSES = """
id=$(crictl ps -q --label io.kubernetes.pod.name={pod} --label io.kubernetes.container.name=browser)
for each in /proc/[0-9]*; do
  grep -qs "$id" $each/cgroup || continue
  field() {{ sed -n "s/^$1:[[:space:]]*//p" $each/status | cut -f1; }}
  echo "$(field Uid) $(field CapEff) $(field NoNewPrivs) $(field Seccomp) $(field Seccomp_filters)" \
    "$(readlink $each/ns/user) $(readlink $each/ns/pid) $(readlink $each/ns/net) $(tr '\\0' ' ' < $each/cmdline)"
done
"""
AS_CHROME = """
import os
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
for path in {paths}:
    try:
        open(path, "rb").read(1)
        print("read", path)
    except OSError as error:
        print("kept", path)
"""
VERBOSE = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9222/readyz?verbose').read().decode())"


@dataclass
class Process:
    uid: int
    capabilities: str
    no_new_privileges: str
    seccomp: str
    filters: int
    user: str  # namespaces, as the kernel names them
    pid: str
    net: str
    command: str


def processes(cluster, pod: dict) -> list[Process]:
    said = sh(cluster.engine, pod["spec"]["nodeName"], PROCESSES.format(pod=pod["metadata"]["name"]))
    found = []
    for line in said.splitlines():
        uid, capabilities, privileges, seccomp, filters, user, pid, net, *command = line.split(" ")
        if pid:  # not one that has just ended
            found.append(
                Process(
                    int(uid),
                    capabilities,
                    privileges,
                    seccomp,
                    int(filters),
                    user,
                    pid,
                    net,
                    " ".join(command),
                )
            )
    return found


def browser_pods(cluster) -> list[dict]:
    return cluster.kubectl.get("pods", "-n", "farm", "-l", "app.kubernetes.io/name=browser")


def says(cluster, pod: str, script: str) -> str:
    return cluster.kubectl("exec", "-n", "farm", pod, "--", PYTHON, "-c", script)


def isolation(cluster, pod: str) -> dict[str, str]:
    """In the agent's own words. Raises StageError while it is not ready: then it answers 503."""
    told: dict[str, str] = json.loads(says(cluster, pod, VERBOSE))["isolation"]
    return told


@pytest.fixture(scope="module")
def seen(cluster) -> tuple[dict, Process, list[Process]]:
    """A pod that is free, its agent, and all processes of its Chrome."""

    def looked():
        pod = browser_pods(cluster)[0]
        there = processes(cluster, pod)
        agents = [each for each in there if "-m farmagent" in each.command and "tini" not in each.command]
        chromes = [each for each in there if "chromium" in each.command and each not in agents]
        renderers = [each for each in chromes if "--type=renderer" in each.command]
        return (pod, agents[0], chromes) if agents and renderers else None

    return waiting.wait_for(looked, "a Chrome with a page stands", timeout_s=60)


def test_chrome_runs_under_a_uid_that_is_not_the_agents_and_without_any_capability(seen):
    _, agent, chromes = seen
    assert agent.uid == 0
    assert {each.uid for each in chromes}.isdisjoint({0, 1000})
    assert len({each.uid for each in chromes}) == 1
    assert {each.no_new_privileges for each in chromes} == {"1"}
    browser = [each for each in chromes if "--type=" not in each.command and each.user == agent.user]
    assert browser
    assert {int(each.capabilities, 16) for each in browser} == {0}


def test_chromes_own_sandbox_is_on(seen):
    _, agent, chromes = seen
    assert not [each for each in chromes if "--no-sandbox" in each.command]
    (browser,) = [each for each in chromes if "--type=" not in each.command and "headless" in each.command]
    for renderer in (each for each in chromes if "--type=renderer" in each.command):
        assert renderer.seccomp == "2"
        assert renderer.filters > browser.filters > 0  # its own filter over the container's
        for kind in ("user", "pid", "net"):
            assert getattr(renderer, kind) != getattr(agent, kind), kind


def test_chrome_reads_no_secret(cluster, seen):
    pod, _, chromes = seen
    secrets = ["/secrets/agent/key", "/proc/1/environ"]
    script = AS_CHROME.format(uid=chromes[0].uid, paths=secrets)
    assert says(cluster, pod["metadata"]["name"], script).splitlines() == [f"kept {path}" for path in secrets]
    mounts = [m["mountPath"] for c in pod["spec"]["containers"] for m in c["volumeMounts"]]
    assert not [path for path in mounts if "serviceaccount" in path]


def test_the_agent_says_what_the_node_shows(cluster, seen):
    told = waiting.wait_for(
        lambda: isolation(cluster, seen[0]["metadata"]["name"]), "the agent is free and says so", timeout_s=60
    )
    assert (told["uid"], told["sandbox"]) == ("own", "on"), told


@pytest.mark.parametrize(
    ("mode", "changes", "uid", "sandbox"),
    [
        ("without-profile", {"seccomp_profile": ""}, "own", "off"),
        ("restricted", {"seccomp_profile": "", "restricted": True}, "shared", "off"),
        ("restricted-with-profile", {"restricted": True}, "shared", "on"),
    ],
)
def test_what_is_left_in_another_mode_is_what_the_page_says(cluster, mode, changes, uid, sandbox):
    """docs/isolation.md. Without a profile that lets it, Chrome starts all the same, and says so."""
    pod = one_pod(cluster, mode, changes)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    name = pod["metadata"]["name"]
    try:
        cluster.kubectl(
            "wait", "-n", "farm", f"pod/{name}", "--for=condition=Ready", "--timeout=120s", timeout_s=150
        )
        told = isolation(cluster, name)
        assert (told["uid"], told["sandbox"]) == (uid, sandbox), told
    finally:
        cluster.kubectl("delete", "-n", "farm", f"pod/{name}", "--grace-period=1")


def one_pod(cluster, mode: str, changes: dict) -> dict:
    """A pod of the browsers' Deployment as it is rendered for that mode; no Service finds it."""
    from dataclasses import replace

    folder = KindFolder()
    there = folder.read()
    assert there is not None
    rendered = parsed(render(cluster.kubectl.program, replace(up.rendering(there, folder), **changes)))
    (template,) = [
        item["spec"]["template"]
        for item in rendered
        if (item["kind"], item["metadata"]["name"]) == ("Deployment", "browsers")
    ]
    labels = {**template["metadata"]["labels"], "app.kubernetes.io/name": "isolation"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"isolation-{mode}", "namespace": "farm", "labels": labels},
        "spec": template["spec"],
    }
