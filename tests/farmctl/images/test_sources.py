import http.server
import threading
from contextlib import contextmanager

import pytest

from farmctl.errors import StageError
from farmctl.images import catalogue, node, sources

FOUND = catalogue.read()
PULLED, BUILT = FOUND.images["node"].pulled, node.tag(FOUND)


class Store:
    """The engine, as far as choosing asks it."""

    def __init__(self, *there: str) -> None:
        self.there = there

    def has_image(self, tag: str) -> bool:
        return tag in self.there


@pytest.mark.parametrize(
    ("there", "answers", "asked", "chosen"),
    [
        ((), True, "auto", "registry"),
        ((), False, "auto", "build"),
        ((BUILT,), True, "auto", "build"),  # here already: nothing is asked
        ((PULLED,), False, "auto", "registry"),
        ((BUILT,), True, "registry", "registry"),
        ((PULLED,), True, "build", "build"),
    ],
)
def test_choice(monkeypatch, there, answers, asked, chosen):
    monkeypatch.setattr(sources, "reachable", lambda: answers)
    assert sources.choose(Store(*there), FOUND, asked) == chosen


def test_another_kubernetes_is_pulled_and_never_built(monkeypatch):
    monkeypatch.setattr(sources, "reachable", lambda: False)
    assert sources.choose(Store(BUILT), FOUND, "auto", "1.35") == "registry"
    assert sources.choose(Store(BUILT), FOUND, "auto", FOUND.minor) == "build"
    assert ":v1.35." in sources.node_image(FOUND, "registry", "1.35")
    assert sources.node_image(FOUND, "registry", FOUND.minor) == PULLED
    with pytest.raises(StageError, match="built from source") as caught:
        sources.node_image(FOUND, "build", "1.35")
    assert "--source registry" in caught.value.hint
    with pytest.raises(StageError, match=r"no node image of Kubernetes 1\.2") as caught:
        sources.node_image(FOUND, "registry", "1.2")
    assert "1.34, 1.35" in caught.value.hint


def test_either_node_image_is_known():
    assert all(sources.known(FOUND, image) for image in FOUND.images["node"].further.values())
    assert sources.known(FOUND, PULLED)
    assert sources.known(FOUND, BUILT)
    assert not sources.known(FOUND, "docker.io/kindest/node:v1.20.0")
    assert sources.built(FOUND, BUILT)
    assert not sources.built(FOUND, PULLED)


@contextmanager
def answering(status: int):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v2/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "is_one"), [(200, True), (401, True), (404, False), (502, False)])
def test_registry_is_known_by_its_answer(monkeypatch, status, is_one):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with answering(status) as url:
        assert sources.reachable(url) is is_one


def test_nothing_there_is_no_registry(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert not sources.reachable("http://127.0.0.1:9/v2/")
