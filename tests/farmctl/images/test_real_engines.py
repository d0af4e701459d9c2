"""What farmctl asks of a container engine, asked of real ones: `pytest -m engine` where docker or podman answers.

FARMCTL_TEST_ENGINES names those that have to answer; without it one that does not is skipped.
"""

import hashlib
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest

from farmctl.errors import StageError
from farmctl.images import archives, catalogue, engines, farm, gobuild, listing, loading
from farmctl.images.catalogue import read as read_catalogue
from farmctl.testbeds.kind.cluster import gateways, nodes, programs

pytestmark = pytest.mark.engine

CLUSTER = "farm-engine-test"
BASE, IMAGE, CHANGED = (f"docker.io/library/{CLUSTER}:{tag}" for tag in ("base", "one", "two"))
PROGRAMS = ("/bin/sh", "/bin/sleep", "/bin/cat")


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request):
    demanded = os.environ.get("FARMCTL_TEST_ENGINES", "").split()
    if demanded and request.param not in demanded:
        pytest.skip(f"FARMCTL_TEST_ENGINES={' '.join(demanded)}")
    try:
        if not shutil.which(request.param):
            raise StageError(f"no {request.param} here")
        found = engines.check(request.param)
    except StageError as error:
        if demanded:
            raise
        pytest.skip(str(error))
    yield found
    for each in nodes.listed(found, CLUSTER):
        found.run("rm", "-f", "-v", each.name, check=False)
    found.run("rmi", "-f", IMAGE, CHANGED, BASE, check=False)


@pytest.fixture(scope="module")
def image(engine, tmp_path_factory):
    """Two images of one base: the second differs in its last layer. The base is this machine's own shell."""
    root = tmp_path_factory.mktemp("root")
    for program in PROGRAMS:
        put(root, program)
        for library in re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", program], text=True)):
            put(root, library)
    put(root, "/bin/cat", programs.KUBECTL_ON_NODE)
    engine.import_folder(root, BASE)
    for tag, text in ((IMAGE, "one"), (CHANGED, "two")):
        context = tmp_path_factory.mktemp("context")
        (context / "Containerfile").write_text(f'FROM {BASE}\nCOPY said /said\nCMD ["/bin/sleep", "600"]\n')
        (context / "said").write_text(text)
        engine.build(context, tag)
    return IMAGE


def put(root, path, name=""):
    target = root / (name or path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(path, target)  # what a link leads to, under the name that is asked for


def test_a_recipe_is_built_and_the_image_stands_under_its_full_name(engine, image):
    assert engine.has_image(image)
    assert not engine.has_image(f"{image}-of-nothing")
    assert engine.image_bytes(image) > 100_000
    assert {BASE, IMAGE, CHANGED} <= set(listing.tags(engine))
    said = engine.run("run", "--rm", "--network", "none", CHANGED, "/bin/cat", "/said").stdout
    assert said == "two"


def test_a_build_that_fails_says_why(engine, tmp_path):
    (tmp_path / "Containerfile").write_text(f"FROM {BASE}\nCOPY absent /\n")
    with pytest.raises(StageError, match="absent"):
        engine.build(tmp_path, f"{IMAGE}-never")
    assert not engine.has_image(f"{IMAGE}-never")


def test_a_saved_image_becomes_an_archive_whose_blobs_are_what_their_names_say(engine, image, tmp_path):
    path = tmp_path / "image.tar"
    engine.run("save", "-o", str(path), image)
    saved = archives.read(path, image)
    assert len(saved.layers) >= 2
    out = io.BytesIO()
    archives.write(saved, out, without={saved.layers[0].digest})
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as made:
        blobs = [name for name in made.getnames() if name.startswith("blobs/sha256/")]
        for name in blobs:
            assert hashlib.sha256(made.extractfile(name).read()).hexdigest() == name.rpartition("/")[2]
        assert saved.layers[0].digest.partition(":")[2] not in "".join(blobs)
        index = json.load(made.extractfile("index.json"))
    # The name that a manifest asks for, not the engine's short one: else pods wait for an image that is there.
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == image


@pytest.fixture
def network(engine, monkeypatch):
    """Under this name the code of the cluster's nodes finds its network."""
    monkeypatch.setattr(nodes, "NETWORK", CLUSTER)
    monkeypatch.setattr(gateways, "NETWORK", CLUSTER)
    engine.run("network", "create", CLUSTER)
    yield CLUSTER
    for each in nodes.listed(engine, CLUSTER):
        engine.run("rm", "-f", "-v", each.name)
    engine.run("network", "rm", CLUSTER, check=False)


def start(engine, network, name):
    labels = {nodes.CLUSTER_LABEL: CLUSTER, nodes.ROLE_LABEL: "worker"}
    words = [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
    # As kind runs its nodes: where that asks for more rights than this machine gives, no cluster stands either.
    engine.run(
        "run",
        "-d",
        "--privileged",
        "--stop-timeout",
        "0",
        "--network",
        network,
        "--name",
        name,
        *words,
        IMAGE,
    )


def test_a_node_that_is_killed_and_started_again_keeps_its_address(engine, image, network):
    for name in ("one", "two"):
        start(engine, network, f"{CLUSTER}-{name}")
    before = {each.name: each.address for each in nodes.listed(engine, CLUSTER)}
    assert all(before.values())
    (shown,) = json.loads(engine.run("container", "inspect", f"{CLUSTER}-one").stdout)
    assert not shown["HostConfig"]["PidsLimit"], "a node's Chromes count as one container's processes"
    engine.run("kill", f"{CLUSTER}-two")
    one, two = nodes.listed(engine, CLUSTER)
    assert (one.running, two.running, two.address) == (True, False, "")
    assert nodes.start_stopped(engine, [one, two], before) == [two.name]
    assert {each.name: each.address for each in nodes.listed(engine, CLUSTER)} == before
    # All of them, in another order: docker deals out addresses as nodes come, and routes follow (docs/kind.md).
    engine.run("kill", *before)
    killed = nodes.listed(engine, CLUSTER)[::-1]
    assert nodes.start_stopped(engine, killed, before) == [each.name for each in killed]
    after = {each.name: each.address for each in nodes.listed(engine, CLUSTER)}
    assert set(after.values()) == set(before.values())
    assert after == before or engine.name == "docker"
    engine.run("pause", f"{CLUSTER}-one")
    assert [each.paused for each in nodes.listed(engine, CLUSTER)] == [True, False]
    assert nodes.start_stopped(engine, nodes.listed(engine, CLUSTER), before) == [f"{CLUSTER}-one"]
    assert nodes.sh(engine, f"{CLUSTER}-one", "cat /said") == "one"


def test_the_nodes_own_kubectl_is_taken_out_of_the_image_or_the_node(engine, image, network, tmp_path):
    before = engine.run("ps", "-aq").stdout
    programs.take_out(engine, image, f"{CLUSTER}-absent", tmp_path / "of-image" / "kubectl")
    assert engine.run("ps", "-aq").stdout == before  # what it took for that is gone
    start(engine, network, f"{CLUSTER}-one")
    engine.run("kill", f"{CLUSTER}-one")
    programs.take_out(engine, "no/such:image", f"{CLUSTER}-one", tmp_path / "of-node" / "kubectl")
    for folder in ("of-image", "of-node"):
        taken = tmp_path / folder / "kubectl"
        assert subprocess.run([taken], input=b"ran", capture_output=True, check=True).stdout == b"ran"


def test_the_hosts_address_on_a_network_is_found(engine, network):
    address = gateways.host_address(engine)
    assert address.count(".") == 3


def test_a_network_stays_while_a_stopped_container_is_on_it(engine, image, network):
    start(engine, network, f"{CLUSTER}-stopped")
    engine.run("kill", f"{CLUSTER}-stopped")
    nodes.drop_network(engine)
    assert nodes.has_network(engine)
    engine.run("start", f"{CLUSTER}-stopped")
    engine.run("rm", "-f", "-v", f"{CLUSTER}-stopped")
    nodes.drop_network(engine)
    assert not nodes.has_network(engine)


def test_a_docker_whose_daemon_is_down_is_told_whatever_its_client_prints(engine, monkeypatch):
    if engine.name != "docker":
        pytest.skip("podman has no daemon")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(StageError, match="does not answer") as caught:
        engines.check("docker")
    assert "nowhere" in str(caught.value)


def test_podman_behind_dockers_client_is_no_docker(monkeypatch, tmp_path):
    if not (shutil.which("docker") and shutil.which("podman")):
        pytest.skip("needs both programs")
    socket = f"unix://{tmp_path}/podman.sock"
    service = subprocess.Popen(["podman", "system", "service", "--time", "0", socket])
    try:
        wait_for((tmp_path / "podman.sock").exists)
        monkeypatch.setenv("DOCKER_HOST", socket)
        with pytest.raises(StageError, match="docker is podman"):
            engines.check("docker")
    finally:
        service.terminate()
        service.wait(10)


@pytest.fixture
def containerd():
    """Paths of containerd and ctr: built for a node image, or on PATH."""
    found = []
    for name in ("containerd", "ctr"):
        kept = gobuild.kept_at(read_catalogue().providing(name), name)
        path = str(kept) if kept.exists() else shutil.which(name)
        if path is None or os.geteuid() != 0:
            pytest.skip("needs root, containerd and ctr")
        found.append(path)
    return found


@contextmanager
def node_of(engine, containerd, folder, snapshotter):
    """An engine whose one node is a containerd of this machine: all else goes to the real engine."""
    daemon, ctr = containerd
    config, sock = folder / "config.toml", folder / "containerd.sock"
    config.write_text(
        f'version = 3\nroot = "{folder}/root"\nstate = "{folder}/state"\n[grpc]\naddress = "{sock}"\n'
        f'[plugins."io.containerd.cri.v1.images"]\nsnapshotter = "{snapshotter}"\n'
    )
    real = shutil.which(engine.name)
    for name, body in (
        ("ctr", f'exec {ctr} --address {sock} "$@"'),
        ("containerd", f'exec {daemon} --config {config} "$@"'),
        (
            "engine",
            f'[ "$1" = exec ] || exec {real} "$@"\nshift; [ "$1" != -i ] || shift; shift\nexec "$@"',
        ),
    ):
        (folder / name).write_text(f"#!/bin/sh\nPATH={folder}:$PATH\n{body}\n")
        (folder / name).chmod(0o755)
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen([daemon, "--config", str(config)], stdout=log, stderr=log)
    try:
        wait_for(
            lambda: (
                subprocess.run([folder / "ctr", "version"], capture_output=True, check=False).returncode == 0
            )
        )
        yield engines.Engine(str(folder / "engine"), engine.version, engine.env)
    finally:
        running.terminate()
        running.wait(20)


@pytest.mark.parametrize("snapshotter", ["overlayfs", "native"])
def test_images_get_whole_into_a_node_and_shared_layers_only_once(
    engine, image, containerd, tmp_path, snapshotter
):
    with node_of(engine, containerd, tmp_path, snapshotter) as node:
        (first,) = loading.ensure(node, {image: ["node"]}, print)
        assert loading.has(node, "node", image)
        (second,) = loading.ensure(node, {CHANGED: ["node"]}, print)
        assert second.bytes < 20_000 < first.bytes
        assert loading.ensure(node, {IMAGE: ["node"], CHANGED: ["node"]}, print) == []
        # Unpacked where this node's pods are started from, and nowhere else.
        listed = node.run(
            "exec", "node", "ctr", "-n", "k8s.io", "snapshots", "--snapshotter", snapshotter, "ls"
        )
        assert len(listed.stdout.splitlines()) > 1


def wait_for(state, within_s=30):
    deadline = time.monotonic() + within_s
    while not state():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def registry(engine, image, tmp_path):
    """Serves ``image`` as a release does: an index with this machine's image and an attestation beside it."""
    saved = tmp_path / "saved.tar"
    engine.run("save", "-o", str(saved), image)
    out = io.BytesIO()
    archives.write(archives.read(saved, image), out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as made:
        blobs = {
            f"sha256:{name.rpartition('/')[2]}": made.extractfile(name).read()
            for name in made.getnames()
            if name.startswith("blobs/sha256/")
        }
        [described] = json.load(made.extractfile("index.json"))["manifests"]
    kind = described["mediaType"].replace("manifest", "index")

    def add(content):
        raw = json.dumps(content).encode()
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        blobs[digest] = raw
        return {"digest": digest, "size": len(raw)}

    manifest = json.loads(blobs[described["digest"]])
    config = {
        "architecture": "unknown",
        "os": "unknown",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    empty = {"mediaType": manifest["config"]["mediaType"], **add(config)}
    attestation = add({**manifest, "config": empty, "layers": []})
    here = {"os": "linux", "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]}
    listed = [
        {key: described[key] for key in ("mediaType", "digest", "size")} | {"platform": here},
        {
            "mediaType": described["mediaType"],
            **attestation,
            "platform": {"os": "unknown", "architecture": "unknown"},
        },
    ]
    index = add({"schemaVersion": 2, "mediaType": kind, "manifests": listed})["digest"]

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = blobs.get(self.path.rpartition("/")[2], b"" if self.path == "/v2/" else None)
            self.send_response(404 if found is None else 200)
            if "/manifests/" in self.path and found:
                self.send_header("Content-Type", json.loads(found)["mediaType"])
                self.send_header("Docker-Content-Digest", self.path.rpartition("/")[2])
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(found or b"")

        do_HEAD = do_GET

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", index
        server.shutdown()
        thread.join()


def test_a_release_s_image_is_pulled_by_its_digest_and_stands_under_its_content_s_tag(
    engine, registry, monkeypatch, tmp_path
):
    address, digest = registry
    # docker takes any address of loopback without TLS by itself.
    conf = tmp_path / "registries.conf"
    conf.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    reaching = replace(engine, env={**engine.env, "CONTAINERS_REGISTRIES_CONF": str(conf)})
    found = read_catalogue()
    where = f"{address}/team/farm-proxy:pulled@{digest}"
    made = {**found.images, "proxy": msgspec.structs.replace(found.images["proxy"], released=where)}
    monkeypatch.setattr(catalogue, "read", lambda: msgspec.structs.replace(found, images=made))
    tag, said = f"docker.io/library/{CLUSTER}:pulled", []
    try:
        assert farm.pulled(reaching, "proxy", tag, said.append), said
        assert engine.run("run", "--rm", "--network", "none", tag, "/bin/cat", "/said").stdout == "one"
        saved = tmp_path / "pulled.tar"
        engine.run("save", "-o", str(saved), tag)
        assert archives.read(saved, tag).layers
    finally:
        engine.run("rmi", "-f", tag, f"{address}/team/farm-proxy@{digest}", check=False)
