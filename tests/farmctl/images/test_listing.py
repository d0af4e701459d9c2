import json
import subprocess

import pytest

from farmctl.images import catalogue, farm, listing, node

FOUND = catalogue.read()


class Store:
    """An engine with these tags; a node with these images in its containerd."""

    def __init__(self, *tags, on_node=()):
        self.tags, self.on_node = tags, on_node

    def run(self, *words, **_):
        said = "\n".join(self.tags)
        if "crictl" in words:
            said = json.dumps(
                {"images": [{"repoTags": [tag]} for tag in self.on_node] + [{"repoTags": None}]}
            )
        return subprocess.CompletedProcess(words, 0, stdout=said)


@pytest.mark.parametrize(
    ("listed", "full"),
    [
        ("farm-proxy:abc", "docker.io/library/farm-proxy:abc"),
        ("kindest/node:v1", "docker.io/kindest/node:v1"),
        ("docker.io/library/farm-proxy:abc", "docker.io/library/farm-proxy:abc"),
        ("localhost/try:latest", "localhost/try:latest"),
        ("reg.example:5000/a:b", "reg.example:5000/a:b"),
    ],
)
def test_names_are_spelled_out_as_docker_leaves_them(listed, full):
    assert listing.full(listed) == full


def test_stale_is_what_neither_todays_inputs_nor_the_farm_name():
    current = farm.tag_of("proxy")
    store = Store(
        current,
        node.tag(FOUND),
        "farm-proxy:old",
        "farm-browser:running",
        "docker.io/kindest/node:v1.34.4-farm-older",
        "docker.io/library/postgres:16",
        "<none>:<none>",
    )
    assert listing.stale(store, FOUND, ["docker.io/library/farm-browser:running"]) == [
        "docker.io/kindest/node:v1.34.4-farm-older",
        "docker.io/library/farm-proxy:old",
    ]


def test_stale_on_a_node_is_ours_only():
    on_node = [
        "docker.io/library/farm-browser:old",
        "docker.io/library/farm-browser:new",
        "registry.k8s.io/pause:3.10",
    ]
    store = Store(on_node=on_node)
    keep = ["docker.io/library/farm-browser:new"]
    assert listing.stale_on(store, "farm-worker", keep) == ["docker.io/library/farm-browser:old"]


def test_pulled_node_image_that_another_cluster_uses_is_not_ours_to_prune():
    # kindest/node of another tag may be another kind cluster's: only those that farmctl built carry -farm-.
    store = Store("docker.io/kindest/node:v1.33.0")
    assert listing.stale(store, FOUND, []) == []
