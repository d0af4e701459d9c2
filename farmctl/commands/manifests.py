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
) -> None:
    """Print the manifests: a server-side apply of them is what `farmctl up` does."""
    from farmctl.images import catalogue, farm
    from farmctl.testbeds.kind import programs
    from farmctl.testbeds.kind.manifests import Rendering, render

    wanted = Rendering(
        overlay=overlay.value,
        images=farm.names(image_prefix),
        pods=pods,
        namespace=namespace,
    )
    kubectl = programs.renderer(catalogue.read())
    print(HEADER.format(namespace=namespace) + render(kubectl, wanted), end="")
