"""What only a real cluster can show of `farmctl up`: images, rights, fence, and every kind of repair."""

import json
import socket
import subprocess
import sys
import urllib.request

import pytest

from e2e.conftest import farmctl
from farmctl.images import catalogue, loading
from farmctl.testbeds.kind import up as kind_up
from farmctl.testbeds.kind.cluster import nodes, programs, waiting
from farmctl.testbeds.kind.cluster.nodes import sh
from farmctl.testbeds.kind.cluster.state import KindFolder
from farmctl.testbeds.kind.install.manifests import render

pytestmark = [pytest.mark.timeout(1200, func_only=True), pytest.mark.usefixtures("only_on_kind")]
PROXY = "system:serviceaccount:farm:proxy"


@pytest.fixture(scope="module")
def record(farm):
    return KindFolder().read()


def up(*words: str) -> str:
    done = farmctl("up", "--testbed", "kind", *words, timeout_s=900)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_image_is_whole_on_every_node_that_its_pods_may_be_put_on(cluster, record):
    for image, placed in kind_up.placed(cluster.nodes(), record.images).items():
        for node in placed:
            assert loading.has(cluster.engine, node, image), (image, node)


def allowed(kind_cluster, verb: str, resource: str, namespace: str = "farm") -> bool:
    """What the API server's authorizer says of the proxy."""
    resource, _, group = resource.partition(".")
    wanted = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": PROXY, "resourceAttributes": wanted},
    }
    answer = kind_cluster.api.post(
        url="/subjectaccessreviews", version="authorization.k8s.io/v1", data=json.dumps(review)
    )
    answer.raise_for_status()
    return answer.json()["status"]["allowed"]


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_proxy_may_read_endpoint_slices(kind_cluster, verb):
    assert allowed(kind_cluster, verb, "endpointslices.discovery.k8s.io")
    assert not allowed(kind_cluster, verb, "endpointslices.discovery.k8s.io", "default")


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
def test_proxy_may_not_change_endpoint_slices(kind_cluster, verb):
    assert not allowed(kind_cluster, verb, "endpointslices.discovery.k8s.io")


@pytest.mark.parametrize(
    "resource", ["pods", "secrets", "configmaps", "services", "nodes", "deployments.apps"]
)
def test_proxy_may_read_nothing_else(kind_cluster, resource):
    assert not allowed(kind_cluster, "get", resource)
    assert not allowed(kind_cluster, "list", resource)


def test_manifests_pass_the_servers_own_dry_run(cluster):
    folder = KindFolder()
    manifests = render(cluster.kubectl.program, kind_up.rendering(folder.read(), folder))
    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--field-manager=farmctl", "-f", "-", stdin=manifests
    )
    assert "deployment.apps/browsers serverside-applied" in said


def test_ranges_of_the_cluster_end_on_this_machine(cluster):
    """A Service that nothing has programmed, and pods of a node that does not exist."""
    for node in cluster.nodes():
        for address in ("10.96.99.99", "10.244.77.7"):
            probe = f"curl -sS -m 5 http://{address}/ 2>&1 || true"
            said = sh(cluster.engine, node.name, probe)
            assert "after 5" not in said, f"{address} was not refused at once: {said}"  # curl's time-out
            assert "Couldn't connect" in said or "No route" in said or "refused" in said


def test_second_up_changes_nothing(cluster):
    def generations():
        return {
            item["metadata"]["name"]: (item["metadata"]["generation"], item["metadata"]["uid"])
            for item in cluster.kubectl.get("deployments", "-n", "farm")
        }

    up()  # the checkout may have changed since the farm came up
    before = generations()
    up()
    assert generations() == before


def test_other_port_says_recreate_needed(farm):
    done = refused("--door", "127.0.0.1:19922")
    assert "recreate needed" in done.stderr
    assert "farmctl down" in done.stderr


def test_taken_port_is_told_before_anything_is_made(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("FARMCTL_STATE", str(tmp_path / "another"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = refused("--name", "farm-e2e-taken", "--door", f"127.0.0.1:{port}")
    assert f"port {port} is taken" in done.stderr
    assert nodes.listed(cluster.engine, "farm-e2e-taken") == []
    assert not (tmp_path / "another").exists()


def test_the_users_own_context_is_not_touched(cluster, tmp_path, monkeypatch):
    own = tmp_path / "config"
    own.write_text("apiVersion: v1\nkind: Config\ncurrent-context: my-own\n")
    monkeypatch.setenv("KUBECONFIG", str(own))
    up()
    assert "my-own" in own.read_text()
    assert cluster.shape.name not in own.read_text()


def refused(*words: str) -> subprocess.CompletedProcess[str]:
    """A `farmctl up` that must answer 3; its stderr is wanted, so it is not shown."""
    done = subprocess.run(
        [sys.executable, "-m", "farmctl", "up", "--testbed", "kind", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    return done


def test_kind_and_kubectl_are_of_the_catalogues_versions(kind_cluster):
    found = catalogue.read()
    for name, path in (("kind", kind_cluster.kind_path), ("kubectl", kind_cluster.kubectl_path)):
        version = programs.version_of(str(path))
        assert programs.fits(name, found.providing(name).version, version), (name, path, version)
    assert "Ready" in kind_cluster.kubectl("get", "nodes")


def test_image_missing_on_one_node_is_loaded_again(cluster, record):
    node = cluster.nodes()[-1].name
    image = record.images["browser"]
    cluster.engine.run("exec", node, *loading.CTR, "images", "rm", image)
    assert not loading.has(cluster.engine, node, image)
    up()
    assert loading.has(cluster.engine, node, image)


def answered(door: str) -> bool:
    with urllib.request.urlopen(f"{door}/json/version", timeout=10) as answer:
        return answer.status == 200


def test_killed_worker_is_brought_back_under_its_address(cluster, door):
    before = {each.name: each.address for each in cluster.nodes()}
    victim = cluster.nodes()[-1].name
    cluster.engine.run("kill", victim)
    up()
    assert {each.name: each.address for each in cluster.nodes()} == before
    assert answered(door)


def test_restarted_machine_is_brought_back(cluster, door):
    cluster.engine.run("kill", *(each.name for each in cluster.nodes()))
    up()
    assert answered(door)
    assert json.loads(farmctl("status", "-o", "json").stdout)


PAINTED = """() => {
  const drawn = (text) => {
    const canvas = document.createElement('canvas'), at = canvas.getContext('2d');
    canvas.width = canvas.height = 60;
    at.font = '40px sans-serif';
    at.fillText(text, 5, 45);
    return canvas.toDataURL();
  };
  const missing = drawn('\\u{10FFFD}');
  const gl = document.createElement('canvas').getContext('webgl');
  const info = gl && gl.getExtension('WEBGL_debug_renderer_info');
  return {
    tofu: ['Ż', 'Ж', '农', '農', 'ザ', '한', '😀'].filter((text) => drawn(text) === missing),
    webgl: info ? gl.getParameter(info.UNMASKED_RENDERER_WEBGL) : '',
  };
}"""


async def test_slim_image_paints_every_script_and_webgl(farm, door):
    """What the browser's Containerfile takes out of the image is not missed."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(door)
        page = await browser.new_page()
        seen = await page.evaluate(PAINTED)
        await browser.close()
    assert seen["tofu"] == []
    assert "SwiftShader" in seen["webgl"]


async def test_pages_cannot_read_the_pods_files(farm, door):
    """The managed policy is in the image and is obeyed, which a headless shell would not."""
    from playwright.async_api import Error, async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(door)
        page = await browser.new_page()
        with pytest.raises(Error, match="ERR_BLOCKED_BY_ADMINISTRATOR"):
            await page.goto("file:///etc/passwd")
        await browser.close()


def known_pods() -> dict[str, str]:
    """Name of each pod that the proxy knows -> its state."""
    proxy = json.loads(farmctl("status", "-o", "json").stdout)["proxy"]
    return {pod["name"]: pod["state"] for pool in proxy["pools"].values() for pod in pool["pods"]}


def test_watch_goes_on_after_the_api_server_s_restart(cluster, kind_cluster, door):
    """The proxy hears of a pod that is deleted and of the one that replaces it, from an API server that is another."""
    stable = cluster.nodes()[0].name
    old = sh(cluster.engine, stable, "pgrep -x kube-apiserver")
    sh(cluster.engine, stable, "pkill -KILL -x kube-apiserver")  # kubelet starts it again
    waiting.wait_for(
        lambda: cluster.kubectl("get", "--raw=/readyz") == "ok", "the API server is back", timeout_s=180
    )
    assert sh(cluster.engine, stable, "pgrep -x kube-apiserver") != old
    before = known_pods()
    assert len(before) == 4
    victim = min(before)
    kind_cluster.kubectl("delete", "pod", victim, "-n", "farm", "--wait=false")

    def replaced():
        now = known_pods()
        return victim not in now and list(now.values()) == ["free"] * 4

    waiting.wait_for(replaced, "the proxy leases the replacement", timeout_s=180)
    assert answered(door)
