"""``farmctl manifests``: the farm's Kubernetes manifests on stdout, for a GitOps repository or another tool's apply."""

from enum import StrEnum
from typing import Annotated

import typer


class Overlay(StrEnum):
    existing = "existing"
    kind = "kind"


HEADER = """\
# Rendered by farmctl manifests. Proxy and pods share a secret, which is not in here; make it once:
#   kubectl -n {namespace} create secret generic agent-key --from-literal=key=$(openssl rand -hex 32)
"""
TOKENS_HEADER = """\
# So does the door with its callers: a file with one name:token a line.
#   kubectl -n {namespace} create secret generic door-tokens --from-file=tokens=FILE
"""
PROFILE_HEADER = """\
# On each node below the kubelet's seccomp folder (/var/lib/kubelet/seccomp/{profile}) stands what this prints:
#   farmctl manifests --print-seccomp
"""


def manifests(
    overlay: Annotated[Overlay, typer.Option(help="For which kind of cluster.")] = Overlay.existing,
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Where it will stand.")] = "farm",
    pods: Annotated[int, typer.Option(min=0, help="How many pods.")] = 4,
    image_prefix: Annotated[
        str,
        typer.Option(
            metavar="REGISTRY/PATH",
            help="Where the cluster pulls the images from.",
            show_default="where the release keeps them",
        ),
    ] = "",
    image_pull_secret: Annotated[
        str, typer.Option(metavar="NAME", help="The Secret that the registry asks for.")
    ] = "",
    arch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARCH", help="What the images are for, may be repeated.", show_default="amd64, arm64"
        ),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="The door asks callers for tokens, from a Secret.")
    ] = False,
    seccomp_profile: Annotated[
        str, typer.Option(metavar="PATH", help="The nodes' profile with which Chrome keeps its sandbox.")
    ] = "",
    restricted: Annotated[
        bool, typer.Option("--restricted", help="Pods at the level restricted; Chrome shares a uid.")
    ] = False,
    print_seccomp: Annotated[
        bool, typer.Option("--print-seccomp", help="Print that profile (JSON) instead of the manifests.")
    ] = False,
) -> None:
    """Print the manifests: a server-side apply of them is what `farmctl up` does."""
    from farmctl.images import catalogue, farm
    from farmctl.testbeds.kind.cluster import programs
    from farmctl.testbeds.kind.install.manifests import SECCOMP, Rendering, render

    if print_seccomp:
        print(SECCOMP.read_text(), end="")
        return
    wanted = Rendering(
        overlay=overlay.value,
        images=farm.names(image_prefix),
        pods=pods,
        namespace=namespace,
        asks_tokens=tokens,
        pull_secret=image_pull_secret,
        seccomp_profile=seccomp_profile,
        restricted=restricted,
        architectures=tuple(arch or ()),
    )
    kubectl = programs.renderer(catalogue.read())
    header = HEADER + (TOKENS_HEADER if tokens else "") + (PROFILE_HEADER if seccomp_profile else "")
    print(header.format(namespace=namespace, profile=seccomp_profile) + render(kubectl, wanted), end="")
