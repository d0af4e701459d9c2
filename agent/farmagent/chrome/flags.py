"""Chrome's command line: what makes it start quickly, keep quiet on the network, and leave nothing outside.

Each choice was measured or stands here for a reason; ``docs/decisions`` holds the disputed ones.
"""

import os
from pathlib import Path

from farmwire.launch_options import LaunchOptions, window_of

from farmagent.chrome.binaries import Binary
from farmagent.chrome.directories import ChromeDirectories

# Chrome's renderers share memory in /dev/shm; a container's default is 64 MiB, too small for big pages.
SHM_WANTED_BYTES = 256 * 1024 * 1024

FEATURES_OFF = (
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,PreloadTopChromeWebUI,"  # more than half of the start's CPU
    "SpareRendererForSitePerProcess,MediaRouter,Translate,OptimizationHints"
)
TUNED = (
    "--password-store=basic",
    "--disable-extensions",
    "--disable-component-extensions-with-background-pages",
    "--disable-default-apps",
    f"--disable-features={FEATURES_OFF}",
    "--no-startup-window",  # half the CPU to the first answer; the page that the agent opens then pays the rest
)
QUIET = (
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--disable-sync",
    "--disable-breakpad",
    "--metrics-recording-only",
    "--no-pings",
)
# A page must behave as if somebody looked at it, and a caller's script must not be slowed down for politeness.
STEADY = (
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-hang-monitor",
    "--disable-prompt-on-repost",
    "--mute-audio",
)


def command_line(binary: Binary, directories: ChromeDirectories, extra: tuple[str, ...]) -> list[str]:
    """``extra`` comes last, so that it wins where Chrome takes the last of two."""
    words = [
        str(binary.path),
        "--headless=new",
        "--remote-debugging-port=0",
        f"--user-data-dir={directories.profile}",
        *TUNED,
        *QUIET,
        *STEADY,
    ]
    if binary.no_sandbox:
        words.append("--no-sandbox")
    if not _shm_is_big():
        words.append("--disable-dev-shm-usage")
    return [*words, *extra]


def asked(options: LaunchOptions) -> tuple[str, ...]:
    """What a lease's own options are on Chrome's command line; its time zone is in the environment instead."""
    words = []
    if options.proxy_server:
        words.append(f"--proxy-server={options.proxy_server}")
    if options.user_agent:
        words.append(f"--user-agent={options.user_agent}")
    if options.lang:
        words += [f"--lang={options.lang.partition(',')[0]}", f"--accept-lang={options.lang}"]
    if options.window:
        words.append("--window-size={},{}".format(*window_of(options)))
    return (*words, *options.args)


def clash(options: LaunchOptions, own: tuple[str, ...]) -> str:
    """A flag of FARMAGENT_CHROME_ARGS that the options would undo, "" when there is none: the pod's owner has the say,
    and about a proxy as a whole (a bypass list of a caller's would lead around the owner's).
    """
    wanted = {_subject(flag) for flag in asked(options)}
    return next((flag.partition("=")[0] for flag in own if _subject(flag) in wanted), "")


def _subject(flag: str) -> str:
    name = flag.partition("=")[0]
    return "proxy" if name.startswith(("--proxy-", "--no-proxy-")) else name


def _shm_is_big(path: Path = Path("/dev/shm")) -> bool:  # noqa: S108  (the kernel's name for it)
    try:
        size = os.statvfs(path)
    except OSError:
        return False
    return size.f_frsize * size.f_blocks >= SHM_WANTED_BYTES
