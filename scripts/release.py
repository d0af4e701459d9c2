#!/usr/bin/env python3
"""What a release is made of besides wheels: the farm's images, and their digests in the catalogue that ships in the wheel.

    scripts/release.py version                        the version, when every part has it
    scripts/release.py image NAME PREFIX              build NAME for this machine, with SBOM and provenance, and push it
    scripts/release.py catalogue PREFIX ARCH...       join the architectures to one image each, write their digests down

Images stand under PREFIX (registry/path) by their content, so what did not change is not pushed again under another name.
Run from a checkout by .github/workflows/release.yml; `docker buildx` does the building.
"""

import platform
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from farmctl.images import base, catalogue, farm

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def docker(*words: str) -> str:
    print(f"docker {' '.join(words)}", file=sys.stderr)
    return subprocess.run(["docker", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def name_of(image: str, prefix: str) -> str:
    return f"{prefix}/{farm.tag_of(image).rpartition('/')[2]}"


def push(image: str, prefix: str) -> None:
    """By tag, one for each architecture: joining needs no more than that."""
    arch = ARCHITECTURES[platform.machine()]
    with tempfile.TemporaryDirectory() as folder:
        farm.lay(image, Path(folder))
        docker(
            "buildx", "build", "--push", "--platform", f"linux/{arch}", "--sbom=true", "--provenance=mode=max",
            "--build-context", f"{base.NAME.rpartition('/')[2]}=docker-image://{catalogue.read().images['base'].pulled}",
            "--file", f"{folder}/Containerfile", "--tag", f"{name_of(image, prefix)}-{arch}", folder,
        )  # fmt: skip


def join(image: str, prefix: str, archs: list[str]) -> str:
    """One image of all architectures; NAME:CONTENT@DIGEST."""
    name = name_of(image, prefix)
    release = f"{name.rpartition(':')[0]}:{version('farmctl')}"
    docker(
        "buildx",
        "imagetools",
        "create",
        "--tag",
        name,
        "--tag",
        release,
        *(f"{name}-{arch}" for arch in archs),
    )
    digest = docker("buildx", "imagetools", "inspect", name, "--format", "{{.Manifest.Digest}}")
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"{name} has no digest: {digest!r}")
    return f"{name}@{digest}"


def write(path: Path, image: str, where: str) -> None:
    """The catalogue keeps its comments: one line more in the image's table, or that line anew."""
    head = f"[images.{image}]\n"
    before, found, after = path.read_text().partition(head)
    if not found:
        raise SystemExit(f"{path} has no {head.strip()}")
    table, rest = re.match(r"((?:[^\[\n][^\n]*\n)*)(.*)", after, flags=re.DOTALL).groups()
    kept = "".join(line for line in table.splitlines(keepends=True) if not line.startswith("released"))
    path.write_text(f'{before}{head}{kept}released = "{where}"\n{rest}')


def main(words: list[str]) -> None:
    match words:
        case ["version"]:
            found = {part: version(part) for part in ("farmctl", "farm-proxy", "farm-agent", "farm-wire")}
            if len(set(found.values())) != 1:
                raise SystemExit(f"the parts are not of one version: {found}")
            print(found["farmctl"])
        case ["image", image, prefix]:
            push(image, prefix)
        case ["catalogue", prefix, *archs] if archs:
            for image in farm.PARTS:
                write(catalogue.PATH, image, join(image, prefix, archs))
            print(catalogue.PATH.read_text())
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
