"""Loading against a program that plays engine and node: what moves, what is verified, what a failure says."""

import json
import sys

import pytest

from farmctl.errors import StageError
from farmctl.images import loading
from farmctl.images.engines import Engine

IMAGE = "docker.io/library/farm-browser:abc"
NODE = '''\
#!{python}
"""An engine with one image, and nodes that are folders: blobs, and a list of images that are whole."""
import hashlib, io, json, os, sys, tarfile
root, words = {root!r}, sys.argv[1:]
LAYERS = [b"base " * 1000, b"code"]
def blobs(node):
    folder = os.path.join(root, node)
    os.makedirs(folder, exist_ok=True)
    return folder
if words[:2] == ["save", "-o"]:
    names = [hashlib.sha256(layer).hexdigest() + ".tar" for layer in LAYERS]
    manifest = json.dumps([{{"Config": "config.json", "Layers": names}}]).encode()
    with tarfile.open(words[2], "w") as archive:
        for name, content in [*zip(names, LAYERS), ("config.json", b"{{}}"), ("manifest.json", manifest)]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    sys.exit()
node = next(word for word in words[1:] if not word.startswith("-"))
ask = words[words.index("--namespace=k8s.io") + 1 :] if "--namespace=k8s.io" in words else []
if ask[:2] == ["content", "ls"]:
    print("\\n".join("sha256:" + name for name in os.listdir(blobs(node)) if len(name) == 64))
elif ask[:2] == ["images", "check"]:
    if os.path.exists(os.path.join(blobs(node), "whole")):
        print("REF TYPE DIGEST STATUS SIZE UNPACKED")
        print("{image} application/x sha256:1 complete (3/3) 1 KiB/1 KiB true")
elif ask[:2] == ["images", "import"]:
    if node == "full":
        sys.exit("ctr: write: no space left on device")
    taken = 0
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for info in archive:
            if info.name.startswith("blobs/"):
                taken += info.size
                with open(os.path.join(blobs(node), info.name.rpartition("/")[2]), "wb") as out:
                    out.write(archive.extractfile(info).read())
    with open(os.path.join(blobs(node), "taken"), "a") as log:
        log.write(json.dumps(taken) + "\\n")
    if node != "forgetful":
        open(os.path.join(blobs(node), "whole"), "w").close()
elif "df" in words:
    print("Filesystem 1048576-blocks Used Available Capacity Mounted on\\n/dev/x 10 10 {free} 100% /var")
'''


@pytest.fixture
def engine(tmp_path, monkeypatch):
    path = tmp_path / "engine"
    path.write_text(NODE.format(python=sys.executable, root=str(tmp_path), image=IMAGE, free=12))
    path.chmod(0o755)
    return Engine(str(path), "4.3.1")


def taken(tmp_path, node):
    return [json.loads(line) for line in (tmp_path / node / "taken").read_text().splitlines()]


def test_image_is_loaded_once_and_only_where_it_lacks(engine, tmp_path):
    said = []
    moved = loading.ensure(engine, {IMAGE: ["one", "two"]}, said.append)
    assert {each.node for each in moved} == {"one", "two"}
    assert said == [f"loading {IMAGE} into one, two"]
    assert loading.ensure(engine, {IMAGE: ["one", "two"]}, said.append) == []
    (tmp_path / "two" / "whole").unlink()
    (again,) = loading.ensure(engine, {IMAGE: ["one", "two"]}, said.append)
    assert again.node == "two"
    # The layers were still there: only the small rest moved.
    first, second = taken(tmp_path, "two")
    assert first > 5000
    assert second < 1000


def test_full_disk_is_told_with_image_node_and_cause(engine):
    with pytest.raises(StageError) as caught:
        loading.ensure(engine, {IMAGE: ["full"]}, print)
    assert IMAGE in str(caught.value)
    assert "full" in str(caught.value)
    assert "no space left" in str(caught.value)
    assert "12 MiB left" in caught.value.hint


def test_only_what_the_node_says_afterwards_is_believed(engine):
    with pytest.raises(StageError, match="did not get into forgetful"):
        loading.ensure(engine, {IMAGE: ["forgetful"]}, print)
