"""``python -m farmagent``: read the settings, find Chrome, serve until drained, exit 0.

Exit codes: 0 drained, 1 the machine lacks something or the port is taken, 2 settings that cannot be used.
"""

import asyncio
import os
import signal
import sys

from farmagent import __version__, binaries, policies, priorities, reaper, settings
from farmagent.binaries import Binary
from farmagent.browsers import Workshop
from farmagent.directories import WorkDirectory
from farmagent.errors import AgentError, SettingsError
from farmagent.leasing import Leasing
from farmagent.logs import log
from farmagent.pod import Pod
from farmagent.rendering import renderer
from farmagent.server import AgentServer
from farmagent.settings import Settings

HELP = """usage: python -m farmagent [--help | --version]

The process in a browser pod: owns one Chrome, serves one lease at a time, recycles between leases.
Settings come from the environment:
"""


async def serve(config: Settings, binary: Binary, work: WorkDirectory) -> None:
    """Until drained. Raises AgentError when the address cannot be listened on."""
    shop = Workshop(config, binary, work, low_priority=priorities.can_lift())
    loop = asyncio.get_running_loop()
    pod = Pod(shop, on_exit=lambda: reaper.reap_orphans(pod.owns))
    reaper.watch(loop, pod.owns)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, pod.drain)
    async with AgentServer(pod, Leasing(pod, renderer(config))):
        await pod.run()


def run(config: Settings) -> None:
    """Raises AgentError."""
    # PID 1 has no default actions: without this, a SIGTERM before the loop runs would be lost
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    binary = binaries.find(config)
    if binary.no_sandbox:
        log.warning("no-sandbox", detail=binary.no_sandbox)
    for name in settings.unknown():
        log.warning("unknown-setting", name=name)
    if config.policy_dir is not None:
        log.info("policy-written", path=str(policies.write(config.policy_dir)))
    if not reaper.adopt_orphans():
        log.warning("no-subreaper", detail="orphans of Chrome go to the machine's own init")
    owner = (binary.user.uid, binary.user.gid) if binary.user is not None else None
    work = WorkDirectory(config.parent_dir, owner=owner)
    work.open()
    try:
        asyncio.run(serve(config, binary, work))
    finally:
        work.close()


def main(arguments: list[str]) -> int:
    if arguments in (["--help"], ["-h"]):
        print(HELP + settings.describe())
        return 0
    if arguments == ["--version"]:
        print(f"farm-agent {__version__}")
        return 0
    if arguments:
        print(f"unknown argument {arguments[0]}; try --help", file=sys.stderr)
        return 2
    try:
        run(Settings.from_env(os.environ))
    except SettingsError as error:
        for problem in error.problems:
            print(f"farmagent: {problem}", file=sys.stderr)
        return 2
    except AgentError as error:
        print(f"farmagent: {error}", file=sys.stderr)
        return 1
    log.info("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
