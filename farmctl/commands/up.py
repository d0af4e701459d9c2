"""``farmctl up``: a farm on this machine or on a cluster, in the background; a second ``up`` keeps what runs and mends
what does not.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from farmctl.testbeds.kind.existing import WantedInstall
    from farmctl.testbeds.local.settings import LocalSettings
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.overrides import Overrides

DOOR = "127.0.0.1:9222"
TOKEN_BYTES = 6  # names the testbed's processes, folder and firewall table; no secret


LOCAL_TIMEOUT_S, KIND_TIMEOUT_S = 120.0, 300.0


class Source(StrEnum):
    auto = "auto"
    registry = "registry"
    build = "build"


class Kind(StrEnum):
    auto = "auto"
    local = "local"
    kind = "kind"


def up(
    testbed: Annotated[
        Kind, typer.Option(help="Where the farm runs; auto says what it chose and why.")
    ] = Kind.auto,
    pods: Annotated[
        int | None, typer.Option(min=0, max=200, help="How many pods, each a Chrome.", show_default="4")
    ] = None,
    door: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where callers connect; admin is the next port.", show_default=DOOR
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, max=8, help="kind: spot nodes; 0 puts all on one node.", show_default="2"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="kind: the cluster's name.", show_default="farm", metavar="NAME")
    ] = None,
    source: Annotated[
        Source,
        typer.Option(
            envvar="FARMCTL_SOURCE",
            help="kind: where node and base image come from; auto tries a registry first.",
        ),
    ] = Source.auto,
    kubernetes: Annotated[
        str,
        typer.Option(
            metavar="MINOR",
            envvar="FARMCTL_KUBERNETES",
            help="kind: another minor version of the catalogue, such as 1.35; official images only.",
        ),
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="NAME", help="Install into the existing cluster of this context instead.")
    ] = "",
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="With --context: where it stands.")] = "",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="With --context.")] = "farm",
    image_prefix: Annotated[
        str,
        typer.Option(
            metavar="REGISTRY/PATH", help="With --context: where the cluster pulls the images from."
        ),
    ] = "",
    agent_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A setting of every agent; NAME= takes the default again. Repeatable."
        ),
    ] = None,
    proxy_env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="The same of the proxy.")
    ] = None,
    image_pull_secret: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --context: the Secret that the registry asks for."),
    ] = None,
    arch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARCH",
            help="With --context: what the images are for, may be repeated.",
            show_default="this machine's",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="With --context: callers' tokens, name:token a line.",
        ),
    ] = None,
    seccomp_profile: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="With --context: the nodes' profile with which Chrome keeps its sandbox."
        ),
    ] = None,
    restricted: Annotated[
        bool | None,
        typer.Option(
            "--restricted", help="With --context: pods at the level restricted; Chrome shares a uid."
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds until the farm has to be whole.", show_default="120, kind 300"),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Bring up a farm: pods with real Chromes, the lease proxy, a control plane. Exit 3 when that cannot be."""
    from farmctl.testbeds import choosing, overrides
    from farmctl.testbeds.kind.cluster.state import KindFolder
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.state_folders import default_path

    asked = overrides.asked(agent_env or (), proxy_env or ())
    if context:
        from farmctl.testbeds.kind.existing import WantedInstall

        wanted = WantedInstall(
            context=context,
            kubeconfig=kubeconfig,
            namespace=namespace,
            pods=pods,
            image_prefix=image_prefix,
            overrides=asked,
            timeout_s=timeout or KIND_TIMEOUT_S,
            tokens=tokens.read_text() if tokens else None,
            pull_secret=image_pull_secret,
            seccomp_profile=seccomp_profile,
            restricted=restricted,
            architectures=tuple(arch) if arch else None,
        )
        _install(wanted, quiet=quiet)
        return
    choice = choosing.choose(
        testbed.value,
        kind_is_up=KindFolder().record.exists(),
        local_is_up=StateFolder(default_path()).supervised(),
    )
    if not quiet:
        typer.echo(f"testbed: {choice.kind} ({choice.why})", err=True)
    if choice.kind == "kind":
        _up_kind(pods, door, workers, name, source, kubernetes, asked, timeout, quiet=quiet)
    else:
        _up_local(pods, door, asked, timeout or LOCAL_TIMEOUT_S, quiet=quiet)


def _up_kind(
    pods: int | None,
    door: str | None,
    workers: int | None,
    name: str | None,
    source: Source,
    kubernetes: str,
    asked: "Overrides",
    timeout_s: float | None,
    *,
    quiet: bool,
) -> None:
    from farmctl.reports.steps import Steps
    from farmctl.testbeds.kind import up
    from farmctl.testbeds.kind.cluster.state import KindFolder

    folder = KindFolder()
    wanted = up.Wanted(
        pods=pods,
        door=_ipv4(address(door)) if door else None,
        workers=workers,
        name=name,
        source=source.value,
        kubernetes=kubernetes,
        overrides=asked,
        timeout_s=timeout_s or KIND_TIMEOUT_S,
    )
    with folder.held(), Steps(quiet=quiet) as say:
        there = up.bring_up(wanted, folder, say)
    assert there.shape is not None  # that is what bring_up makes
    print(f"door   http://{there.shape.door}")
    print(f"admin  http://{there.shape.admin}")
    print(f"kube   KUBECONFIG={folder.kubeconfig} kubectl -n {there.namespace} get pods")


def _install(wanted: "WantedInstall", *, quiet: bool) -> None:
    from farmctl.reports.steps import Steps
    from farmctl.testbeds.kind import existing
    from farmctl.testbeds.kind.cluster.state import KindFolder

    folder = KindFolder()
    with folder.held(), Steps(quiet=quiet) as say:
        existing.bring_up(wanted, folder, say)
    named = f" --kubeconfig {wanted.kubeconfig}" if wanted.kubeconfig else ""
    namespace = wanted.namespace
    print(f"inside   http://proxy.{namespace}:9222")
    print(
        f"outside  kubectl{named} --context {wanted.context} -n {namespace} port-forward service/proxy 9222"
    )


def _up_local(
    pods: int | None, door: str | None, asked: "Overrides", timeout_s: float, *, quiet: bool
) -> None:
    import asyncio

    from farmctl.reports.pod_progress import PodProgress
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.local.up import bring_up
    from farmctl.testbeds.state_folders import default_path

    folder = StateFolder(default_path())
    settings = settings_for(folder, pods, door, asked)
    with PodProgress(settings.setup.pods, quiet=quiet) as progress:
        state = asyncio.run(
            bring_up(
                settings,
                folder,
                pods=pods,
                door_named=door is not None,
                timeout_s=timeout_s,
                progress=progress,
            )
        )
    _say(state)


def settings_for(
    folder: "StateFolder", pods: int | None, door: str | None, asked: "Overrides"
) -> "LocalSettings":
    """What a farm that is there, or has crashed, was told by name stays. Raises StageError when no Chromium is found, UsageError for a door that is no address."""
    import os
    import secrets
    import tempfile

    from farmctl import chromium
    from farmctl.testbeds.base import Setup
    from farmctl.testbeds.local.settings import NETWORK, NETWORK_VARIABLE, WORK_PREFIX, LocalSettings

    default = Setup()
    wanted = asked.over(LocalSettings.remembered(folder.settings).overrides)
    token = secrets.token_hex(TOKEN_BYTES)
    door_host, door_port = address(door or DOOR)
    return LocalSettings(
        state=folder.path,
        work=Path(tempfile.gettempdir(), WORK_PREFIX + token),
        token=token,
        chrome=str(chromium.find()),
        setup=Setup(
            pods=default.pods if pods is None else pods,
            agent_env=dict(wanted.agent),
            proxy_env=dict(wanted.proxy),
        ),
        door=f"{door_host}:{door_port}",
        admin=f"{door_host}:{door_port + 1}",
        network=os.environ.get(NETWORK_VARIABLE, NETWORK),
    )


def address(text: str) -> tuple[str, int]:
    """Host (IPv6 in its brackets, as URLs have it) and port of HOST:PORT. Raises UsageError."""
    from farmctl.errors import UsageError

    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65535:
        raise UsageError(f"{text!r} is no HOST:PORT", hint=f"farmctl up --door {DOOR}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise UsageError(
            f"{text!r}: an IPv6 address stands in brackets", hint=f"farmctl up --door '[{host}]:{port}'"
        )
    return host, int(port)


def _ipv4(door: tuple[str, int]) -> tuple[str, int]:
    """The door on kind: engines publish a node's port on IPv4 only, unless their network has IPv6. Raises UsageError."""
    from farmctl.errors import UsageError

    if door[0].startswith("["):
        raise UsageError(
            "on kind the door is at an IPv4 address", hint=f"farmctl up --door 127.0.0.1:{door[1]}"
        )
    return door


def _say(state: dict[str, Any]) -> None:
    settings = state["settings"]
    ready = sum(pod["ready"] for pod in state["pods"])
    print(f"door   http://{settings['door']}")
    print(f"admin  http://{settings['admin']}")
    print(f"pods   {ready} of {state['wanted']} ready")
