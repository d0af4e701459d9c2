"""What only a real cluster can show of `farmctl up`: images, rights, fence, and every kind of repair."""

import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from e2e.conftest import farmctl

pytestmark = pytest.mark.timeout(1200)
PROXY = "system:serviceaccount:farm:proxy"


@pytest.fixture(scope="module", autouse=True)
def _only_on_kind(testbed: str) -> None:
    """Of the module, so that it comes before the module's own fixtures."""
    if testbed != "kind":
        pytest.skip("needs --testbed kind")


@pytest.fixture(scope="module")
def record(farm) -> dict:
    return json.loads(Path(os.environ["FARMCTL_STATE"], "kind", "testbed.json").read_text())


@pytest.fixture(scope="module")
def cluster(farm):
    """The cluster as farmctl itself opens it."""
    from farmctl.images import catalogue, engines
    from farmctl.testbeds.kind import starting
    from farmctl.testbeds.kind.state import KindFolder

    folder = KindFolder()
    there = folder.read()
    return starting.opened(engines.find(), catalogue.read(), folder, there.shape, print)


def up(*words: str) -> str:
    done = farmctl("up", "--testbed", "kind", *words, timeout_s=900)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_image_is_whole_on_every_node_that_its_pods_may_be_put_on(cluster, record):
    from farmctl.images import loading
    from farmctl.testbeds.kind.starting import placed

    for image, nodes in placed(cluster.nodes(), record["images"]).items():
        for node in nodes:
            assert loading.has(cluster.engine, node, image), (image, node)


@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("list", "endpointslices.discovery.k8s.io", True),
        ("watch", "endpointslices.discovery.k8s.io", True),
        ("update", "endpointslices.discovery.k8s.io", False),
        ("list", "pods", False),
        ("get", "secrets", False),
        ("list", "nodes", False),
    ],
)
def test_proxy_may_only_read_endpoint_slices(cluster, verb, resource, allowed):
    command = cluster.kubectl.command("auth", "can-i", verb, resource, "-n", "farm", f"--as={PROXY}")
    said = subprocess.run(
        command, capture_output=True, text=True, check=False, env=cluster.kubectl.environment()
    )
    assert said.stdout.strip() == ("yes" if allowed else "no")


def test_proxy_may_read_them_in_its_own_namespace_only(cluster):
    command = cluster.kubectl.command(
        "auth", "can-i", "list", "endpointslices.discovery.k8s.io", "-n", "default", f"--as={PROXY}"
    )
    said = subprocess.run(
        command, capture_output=True, text=True, check=False, env=cluster.kubectl.environment()
    )
    assert said.stdout.strip() == "no"


def test_manifests_pass_the_servers_own_dry_run(cluster):
    from farmctl.testbeds.kind import starting
    from farmctl.testbeds.kind.manifests import render
    from farmctl.testbeds.kind.state import KindFolder

    folder = KindFolder()
    manifests = render(cluster.kubectl.program, starting.rendering(folder.read(), folder))
    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--field-manager=farmctl", "-f", "-", stdin=manifests
    )
    assert "deployment.apps/browsers serverside-applied" in said


def test_ranges_of_the_cluster_end_on_this_machine(cluster):
    """A Service that nothing has programmed, and pods of a node that does not exist."""
    from farmctl.testbeds.kind.nodes import sh

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


def test_other_port_says_recreate_needed(farm):  # field case 37
    done = farmctl("up", "--testbed", "kind", "--door", "127.0.0.1:19922")
    assert done.returncode == 3


def test_image_missing_on_one_node_is_loaded_again(cluster, record):
    from farmctl.images import loading

    node = cluster.nodes()[-1].name
    image = record["images"]["browser"]
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


def test_restarted_machine_is_brought_back(cluster, door):  # field case 38
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
    """What images/browser/Containerfile takes out of the image is not missed."""
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
