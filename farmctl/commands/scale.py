"""``farmctl scale N`` or ``farmctl scale --auto LOW:HIGH``: how many pods the farm has, or who decides it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from farmctl.testbeds.base import Scaling


def scale(
    pods: Annotated[int | None, typer.Argument(min=0, max=200, help="How many pods.")] = None,
    auto: Annotated[
        str, typer.Option("--auto", metavar="LOW:HIGH", help="Let the autoscaler follow the demand.")
    ] = "",
    sync_s: Annotated[
        float, typer.Option("--sync", min=0.1, help="Autoscaler: seconds between two looks.")
    ] = 15.0,
    scale_down_wait_s: Annotated[
        float,
        typer.Option("--scale-down-wait", min=0, help="Autoscaler: seconds before pods are taken away."),
    ] = 300.0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds until the farm has to be whole.")] = 120.0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the pods.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Set the number of pods. Pods that go finish their session first."""
    import asyncio

    from farmctl.errors import UsageError

    if (pods is None) == (not auto):
        raise UsageError("say how many pods, or --auto LOW:HIGH", hint="farmctl scale 6")
    from farmctl.testbeds.kind.cluster.state import KindFolder

    scaling = _scaling(auto, sync_s, scale_down_wait_s) if auto else None
    if KindFolder().record.exists():
        _scale_kind(pods, None if no_wait else timeout, quiet=quiet)
        return
    asyncio.run(_scale(pods, scaling, None if no_wait else timeout, quiet=quiet))


def _scale_kind(pods: int | None, timeout_s: float | None, *, quiet: bool) -> None:
    from farmctl.errors import StageError
    from farmctl.reports.steps import Steps
    from farmctl.testbeds.kind.cluster.state import KindFolder
    from farmctl.testbeds.kind.scale import scale as scale_kind

    if pods is None:
        raise StageError("no autoscaler is installed in this cluster", hint="farmctl scale 6")
    folder = KindFolder()
    with folder.held(), Steps(quiet=quiet) as say:
        scale_kind(folder, pods, say, timeout_s=timeout_s)
    print(f"farm/kind scaled to {pods}")


def _scaling(auto: str, sync_s: float, scale_down_wait_s: float) -> "Scaling":
    from farmctl.errors import UsageError
    from farmctl.testbeds.base import Scaling

    low, _, high = auto.partition(":")
    if not low.isdecimal() or not high.isdecimal() or not int(low) <= int(high) <= 200 or int(high) == 0:
        raise UsageError(
            f"--auto {auto!r}: LOW:HIGH are whole numbers, 0 to 200", hint="farmctl scale --auto 1:8"
        )
    return Scaling(int(low), int(high), sync_s=sync_s, scale_down_wait_s=scale_down_wait_s)


async def _scale(
    pods: int | None, scaling: "Scaling | None", timeout_s: float | None, *, quiet: bool
) -> None:
    from farmctl.reports.pod_progress import PodProgress
    from farmctl.testbeds.local.control_client import ControlClient
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.local.testbed import LocalTestbed
    from farmctl.testbeds.local.up import until_whole
    from farmctl.testbeds.state_folders import default_path

    folder = StateFolder(default_path())
    testbed = await LocalTestbed.connect(folder)
    state: dict[str, Any] = await ControlClient(folder.socket).state()
    count = state["wanted"] if pods is None else pods
    if scaling is not None:
        count = min(max(count, scaling.low), scaling.high)
    await testbed.resize(count, scaling)
    if timeout_s is not None:
        with PodProgress(count, quiet=quiet) as progress:
            await until_whole(folder, timeout_s, progress)
    print(
        f"farm/local scaled to {count}"
        if scaling is None
        else f"farm/local scales {scaling.low} to {scaling.high}"
    )
