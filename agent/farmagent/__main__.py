"""``python -m farmagent``: read the settings, find Chrome, serve until drained, exit 0.

Exit codes: 0 drained, 1 the machine lacks something or the port is taken, 2 settings that cannot be used.
"""

import asyncio
import os
import signal
import sys

from farmagent import __version__, settings
from farmagent.chrome import binaries, leftover_files, policies, priorities, reaper
from farmagent.chrome.binaries import Binary
from farmagent.chrome.directories import WorkDirectory
from farmagent.chrome.leftover_files import Places
from farmagent.chrome.uids import Uids
from farmagent.errors import AgentError, SettingsError
from farmagent.lease.browsers import ChromeLauncher
from farmagent.lease.leasing import Leasing
from farmagent.lease.pod import Pod
from farmagent.logs import log
from farmagent.render.serving import renderer
from farmagent.server import AgentServer
from farmagent.settings import Settings

HELP = """usage: python -m farmagent [--help | --version | --check]

The process in a browser pod: owns one Chrome, serves one lease at a time, recycles between leases.
Settings come from the environment (--check: only read them, exit code 2 for wrong ones):
"""


async def serve(launcher: ChromeLauncher) -> None:
    """Until drained. Raises AgentError when the address cannot be listened on."""
    loop = asyncio.get_running_loop()
    pod = Pod(launcher, on_exit=lambda: reaper.reap_orphans(pod.owns))
    reaper.watch(loop, pod.owns)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, pod.drain)
    async with AgentServer(pod, Leasing(pod, renderer(launcher.settings))):
        await pod.run()


def run(config: Settings) -> None:
    """Raises AgentError."""
    # PID 1 has no default actions: without this, a SIGTERM before the loop runs would be lost
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Chrome inherits it: what it writes outside its own directories is nobody else's to read, not even for a moment
    os.umask(0o077)
    for name in settings.unknown():
        log.warning("unknown-setting", name=name)
    if config.policy_dir is not None:
        log.info("policy-written", path=str(policies.write(config.policy_dir)))
    if not reaper.adopt_orphans():
        log.warning("no-subreaper", detail="orphans of Chrome go to the machine's own init")
    work = WorkDirectory(config.parent_dir)
    work.open()
    try:
        launcher = chrome_launcher(config, binaries.find(config, work.path), work)
        launcher.clear()
        asyncio.run(serve(launcher))
    finally:
        work.close()


def chrome_launcher(config: Settings, binary: Binary, work: WorkDirectory) -> ChromeLauncher:
    tell = log.warning if binary.shared_uid or binary.no_sandbox else log.info
    tell("isolation", **binary.isolation())
    if binary.shared_uid:
        own = (work.path,) if work.is_alone else ()
        uids, places = Uids(None), Places((*config.sweep, *own))
    else:
        uids, places = Uids(config.chrome_uids), leftover_files.writable()
        places = Places((*places.folders, *config.sweep, work.path), cut=places.cut)
        log.info("swept-folders", folders=[str(folder) for folder in places.folders], cut=places.cut)
    return ChromeLauncher(config, binary, work, uids, places, low_priority=priorities.can_lift())


def main(arguments: list[str]) -> int:
    if arguments in (["--help"], ["-h"]):
        print(HELP + settings.describe())
        return 0
    if arguments == ["--version"]:
        print(f"farm-agent {__version__}")
        return 0
    if arguments not in ([], ["--check"]):
        print(f"unknown argument {arguments[0]}; try --help", file=sys.stderr)
        return 2
    try:
        config = Settings.from_env(os.environ)
        if not arguments:
            run(config)
            log.info("ended")
    except SettingsError as error:
        for problem in error.problems:
            print(f"farmagent: {problem}", file=sys.stderr)
        return 2
    except AgentError as error:
        print(f"farmagent: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
