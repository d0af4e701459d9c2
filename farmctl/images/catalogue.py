"""Reads data/images/catalogue.toml: every name and version of the kind testbed stands there and nowhere else."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

# Recipes and manifests are part of the package: the same files in a checkout, a wheel and an sdist.
ROOT = Path(__file__).resolve().parent.parent / "data"
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
    """``built`` is a folder under data/images/ or "debootstrap"; ``pulled`` is "" for what is always built.

    ``released`` (the farm's own): where a release keeps it, NAME:CONTENT@DIGEST; written as the release is made.
    ``further`` (the node image's): what is pulled for other minor versions of Kubernetes, by "1.35".
    """

    name: str
    built: str
    pulled: str = ""
    released: str = ""
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
    raw: dict[str, Any] = tomllib.loads(path.read_text())
    return msgspec.convert(raw, Catalogue)
