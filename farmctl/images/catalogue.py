"""Reads images/catalogue.toml: every name and version of the kind testbed stands there and nowhere else."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from farmctl.errors import StageError

ROOT = Path(__file__).resolve().parent.parent.parent
PATH = ROOT / "images" / "catalogue.toml"


class GoBinaries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Programs of one Go module: ``packages[i]`` is built as ``names[i]``.

    ``staging`` is the version of the k8s.io/X modules that the module's own go.mod takes from ./staging;
    ``stamp`` names packages whose gitVersion, gitMajor and gitMinor the linker sets to ``version``.
    """

    names: list[str]
    module: str
    version: str
    packages: list[str]
    godebug: str = ""
    staging: str = ""
    stamp: list[str] = []


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``built`` is a folder under images/ or "debootstrap"; ``pulled`` is "" for what is always built.

    ``further`` (the node image's): what is pulled for other minor versions of Kubernetes, by "1.35".
    """

    name: str
    built: str
    pulled: str = ""
    further: dict[str, str] = {}


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    versions: dict[str, str]
    images: dict[str, Image]
    preloaded: dict[str, Image]
    binaries: list[GoBinaries]

    def providing(self, name: str) -> GoBinaries:
        """Return the entry that builds program ``name``; KeyError when none does."""
        for entry in self.binaries:
            if name in entry.names:
                return entry
        raise KeyError(name)

    @property
    def minor(self) -> str:
        """The minor version of Kubernetes that is used unless another is asked for, as "1.34"."""
        return self.versions["kubernetes"].lstrip("v").rpartition(".")[0]

    def preloads(self) -> dict[str, str]:
        """Program (or pause) -> the full name of the image that a source-built node carries."""
        return {program: image.name.format_map(self.versions) for program, image in self.preloaded.items()}


def read(path: Path = PATH) -> Catalogue:
    """Return the checkout's catalogue. Raises StageError when farmctl does not run from a checkout."""
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise StageError(
            f"{path} is missing: images are built from a checkout",
            hint="run farmctl from a clone of its repository",
        ) from error
    return msgspec.convert(raw, Catalogue)
