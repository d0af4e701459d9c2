"""Finds the farm that runs now, whatever its kind."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farmctl.testbeds.base import Testbed
    from farmctl.testbeds.looking import Look


async def current() -> "Testbed":
    """The running testbed. Raises StageError "no farm is up" when there is none."""
    from farmctl.testbeds.kind.cluster.state import KindFolder

    folder = KindFolder()
    if folder.record.exists():
        from farmctl.testbeds.kind.testbed import KindTestbed

        return await KindTestbed.connect(folder)
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.local.testbed import LocalTestbed
    from farmctl.testbeds.state_folders import default_path

    return await LocalTestbed.connect(StateFolder(default_path()))


async def look() -> "Look":
    """The farm as `farmctl status` sees it, parts of it down or not. Raises StageError when there is none."""
    from farmctl.testbeds.kind.cluster.state import KindFolder

    folder = KindFolder()
    if folder.record.exists():
        from farmctl.testbeds.kind import status

        return status.look(folder)
    from farmctl.testbeds.local.state import StateFolder
    from farmctl.testbeds.local.status import LocalLook
    from farmctl.testbeds.local.testbed import LocalTestbed
    from farmctl.testbeds.state_folders import default_path

    return LocalLook(await LocalTestbed.connect(StateFolder(default_path())))
