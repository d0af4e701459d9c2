"""Turns what ``docker save`` or ``podman save`` writes into an OCI archive of one platform that carries only the layers
a node lacks.

An OCI importer does not ask for a blob that is in its content store already: so a change of our own code moves one
small layer. And an image index whose other platforms are not here (docker's containerd store) never reaches a node.
"""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from farmctl.errors import StageError

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
COMPRESSIONS = {b"\x1f\x8b": "+gzip", b"\x28\xb5": "+zstd"}  # magic numbers of RFC 1952 and RFC 8878
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    """``member`` is its path in the saved archive."""

    member: str
    digest: str
    size: int
    media_type: str

    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved image, read once: its name, configuration and layers, the base's first."""

    path: Path
    name: str
    config: Blob
    layers: tuple[Blob, ...]


def read(path: Path, name: str) -> Saved:
    """Read a saved archive. Raises StageError when a part of the image is not in it."""
    with tarfile.open(path) as archive:
        try:
            file = archive.extractfile("manifest.json")
            assert file is not None  # a regular file
            entry = json.load(file)[0]
            config = _blob(archive, entry["Config"], CONFIG)
            layers = tuple(_blob(archive, member, LAYER) for member in entry["Layers"])
        except KeyError as error:
            raise StageError(
                f"{name} is not whole in the engine's store: {error.args[0]}",
                hint="farmctl images build (a pulled image of several platforms: pull the one of this machine)",
            ) from error
    return Saved(path, name, config, layers)


def _blob(archive: tarfile.TarFile, member: str, media_type: str) -> Blob:
    info = archive.getmember(member)
    file = archive.extractfile(info)  # follows the links that older engines save repeated layers as
    if file is None:
        raise KeyError(f"{member} is no file")
    start = file.read(2)
    file.seek(0)
    packed = COMPRESSIONS.get(start, "") if media_type == LAYER else ""
    size = _size(file)
    return Blob(member, f"sha256:{_named(member) or _hash(file)}", size, media_type + packed)


def _size(file: IO[bytes]) -> int:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


def _named(member: str) -> str:
    """The digest that the engine has put into the file's name, or "". The importer checks it in any case."""
    found = re.search(r"(?:^|/)([0-9a-f]{64})(?:\.tar|\.json)?$", member)
    return found[1] if found else ""


def _hash(file: IO[bytes]) -> str:
    sha = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        sha.update(chunk)
    return sha.hexdigest()


def write(saved: Saved, out: IO[bytes], *, without: Collection[str] = ()) -> int:
    """Write an OCI archive without the layers whose digest is in ``without``; returns the bytes of blobs written."""
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": saved.config.descriptor(),
            "layers": [layer.descriptor() for layer in saved.layers],
        }
    )
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {
                "mediaType": MANIFEST,
                "digest": digest,
                "size": len(manifest),
                "annotations": {
                    "io.containerd.image.name": saved.name,
                    "org.opencontainers.image.ref.name": saved.name.rpartition(":")[2],
                },
            }
        ],
    }
    blobs = {blob.digest: blob for blob in (saved.config, *saved.layers) if blob.digest not in without}
    with tarfile.open(fileobj=out, mode="w|") as target, tarfile.open(saved.path) as source:
        _add(target, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for blob in blobs.values():
            info = tarfile.TarInfo(_path(blob.digest))
            info.size = blob.size
            target.addfile(info, source.extractfile(blob.member))
        _add(target, _path(digest), manifest)
        _add(target, "index.json", _json(index))
    return sum(blob.size for blob in blobs.values())


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _add(target: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    target.addfile(info, io.BytesIO(content))
