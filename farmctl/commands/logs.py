"""``farmctl logs [POD|proxy|supervisor]``: what the farm's processes said, dead pods' too."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.log_files import Logs

FOLLOW_S = 0.2


def logs(
    name: Annotated[
        str, typer.Argument(help="A pod's name, proxy or supervisor; `pod/NAME` is fine.")
    ] = "proxy",
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C or the farm's end.")
    ] = False,
    tail: Annotated[int, typer.Option(help="Only the last lines; -1: all.")] = -1,
) -> None:
    """Print the log of the proxy, of a pod (dead ones too) or of the supervisor: JSON, one event a line."""
    from farmctl.errors import StageError
    from farmctl.testbeds.base import NoFarm
    from farmctl.testbeds.kind.cluster.state import KindFolder
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.state_folders import default_path

    if KindFolder().record.exists():
        _kind(name.removeprefix("pod/"), tail, follow=follow)
        return
    folder = StateFolder(default_path())
    if not folder.settings.exists():
        raise NoFarm
    short = name.removeprefix("pod/")
    kept = next((one for one in (folder.logs, folder.pod_logs) if short in one.names()), None)
    if kept is None:
        raise StageError(f"no log of {name!r}", hint=f"one of: {', '.join(_names(folder))}")
    _print(kept, short, tail)
    if follow:
        _follow(folder, kept, short)


def _kind(name: str, tail: int, *, follow: bool) -> None:
    """Kubectl's own logs, of the proxy or of a pod that is there."""
    import subprocess

    from farmctl.testbeds.kind.api.doors import opened
    from farmctl.testbeds.kind.cluster.state import KindFolder

    folder = KindFolder()
    there = folder.read()
    assert there is not None  # its record was there a moment ago
    kubectl, _ = opened(there, folder, lambda step: typer.echo(step, err=True))
    what = "deployment/proxy" if name == "proxy" else f"pod/{name}"
    words = ["logs", "-n", there.namespace, what, f"--tail={tail}", *(["--follow"] if follow else [])]
    done = subprocess.run(kubectl.command(*words), env=kubectl.environment(), check=False)
    if done.returncode != 0:
        raise typer.Exit(1)


def _names(folder: "StateFolder") -> list[str]:
    return [*folder.logs.names(), *folder.pod_logs.names()]


def _print(kept: "Logs", name: str, tail: int) -> None:
    lines = kept.lines(name)
    for line in lines if tail < 0 else lines[len(lines) - tail :] if tail else []:
        print(line)


def _follow(folder: "StateFolder", kept: "Logs", name: str) -> None:
    import time

    from farmctl.testbeds.log_files import follow

    path = kept.path(name)
    for line in follow(path, path.stat().st_size):
        if line is not None:
            print(line, flush=True)
        elif not folder.supervised():
            return
        else:
            time.sleep(FOLLOW_S)
