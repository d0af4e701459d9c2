import gzip
import hashlib
import io
import json
import tarfile

import pytest

from farmctl.errors import StageError
from farmctl.images import archives

NAME = "docker.io/library/farm-browser:abc"
BASE, CODE = b"base layer " * 5000, b"our code"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def saved(path, layers, *, leave_out=()):
    """As podman saves: layers by their digest, manifest.json last."""
    config = json.dumps({"rootfs": {"diff_ids": [digest(layer) for layer in layers]}}).encode()
    names = [f"{digest(layer).partition(':')[2]}.tar" for layer in layers]
    with tarfile.open(path, "w") as archive:
        for name, layer in zip(names, layers, strict=True):
            if layer not in leave_out:
                add(archive, name, layer)
        add(archive, "config.json", config)
        add(archive, "manifest.json", json.dumps([{"Config": "config.json", "Layers": names}]).encode())
    return path


def written(image, **how):
    out = io.BytesIO()
    moved = archives.write(image, out, **how)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        return moved, {info.name: archive.extractfile(info).read() for info in archive.getmembers()}


def test_whole_image_is_an_oci_layout(tmp_path):
    image = archives.read(saved(tmp_path / "a.tar", [BASE, CODE]), NAME)
    moved, files = written(image)
    index = json.loads(files["index.json"])
    (entry,) = index["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == NAME
    manifest = json.loads(files["blobs/" + entry["digest"].replace(":", "/")])
    assert [layer["digest"] for layer in manifest["layers"]] == [digest(BASE), digest(CODE)]
    for descriptor in (manifest["config"], *manifest["layers"]):
        content = files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert digest(content) == descriptor["digest"]
        assert len(content) == descriptor["size"]
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert moved > len(BASE)


def test_what_a_node_has_is_not_sent_again(tmp_path):
    image = archives.read(saved(tmp_path / "a.tar", [BASE, CODE]), NAME)
    _, whole = written(image)
    moved, files = written(image, without={digest(BASE)})
    assert "blobs/" + digest(BASE).replace(":", "/") not in files
    assert "blobs/" + digest(CODE).replace(":", "/") in files
    assert files["index.json"] == whole["index.json"]  # the same image all the same
    assert moved < 1000


def test_missing_layer_names_image_and_cause(tmp_path):
    path = saved(tmp_path / "a.tar", [BASE, CODE], leave_out=[CODE])
    with pytest.raises(StageError, match="farm-browser:abc is not whole") as caught:
        archives.read(path, NAME)
    assert digest(CODE).partition(":")[2] in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("layer", "suffix"),
    [(CODE, ""), (gzip.compress(CODE), "+gzip"), (b"\x28\xb5\x2f\xfd rest", "+zstd")],
)
def test_media_type_says_how_a_layer_is_packed(tmp_path, layer, suffix):
    image = archives.read(saved(tmp_path / "a.tar", [layer]), NAME)
    assert image.layers[0].media_type == archives.LAYER + suffix


def test_layer_that_stands_twice_is_sent_once(tmp_path):
    image = archives.read(saved(tmp_path / "a.tar", [CODE, CODE]), NAME)
    _, files = written(image)
    assert len([name for name in files if name.startswith("blobs/")]) == 3  # layer, config, manifest


def test_links_of_older_engines_are_followed(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        add(archive, "aa/layer.tar", CODE)
        link = tarfile.TarInfo("bb/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../aa/layer.tar"
        archive.addfile(link)
        add(archive, "c.json", b"{}")
        layers = ["aa/layer.tar", "bb/layer.tar"]
        add(archive, "manifest.json", json.dumps([{"Config": "c.json", "Layers": layers}]).encode())
    image = archives.read(path, NAME)
    assert [layer.digest for layer in image.layers] == [digest(CODE)] * 2
