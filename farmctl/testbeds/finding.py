"""Finds the farm that runs now, whatever its kind."""

from farmctl.testbeds.base import Testbed


async def current() -> Testbed:
    """The running testbed. Raises StageError "no farm is up" when there is none."""
    from farmctl.testbeds.kind.state import KindFolder

    folder = KindFolder()
    if folder.record.exists():
        from farmctl.testbeds.kind.testbed import KindTestbed

        return await KindTestbed.connect(folder)
    from farmctl.testbeds.local.state import StateFolder, default_path
    from farmctl.testbeds.local.testbed import LocalTestbed

    return await LocalTestbed.connect(StateFolder(default_path()))
