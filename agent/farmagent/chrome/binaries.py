"""Where Chrome is, whether it can have uids of its own, and why its sandbox is off where it is.

The rule: each is tried, not guessed, by Chrome itself or as the Chrome to come would do it; what is not there is said.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from farmagent.chrome.uids import ChromeUser
from farmagent.errors import AgentError
from farmagent.settings import Settings

# The binaries themselves: /usr/bin/chromium is a shell script that adds flags of its own.
CANDIDATES = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/usr/lib64/chromium-browser/chromium-browser",
)
NAMES = ("chrome", "google-chrome", "chromium", "chromium-browser")
# What Chrome's last words have in common where a kernel or a profile forbids what its sandbox needs.
SANDBOX_REFUSED = re.compile(r"sandbox|namespace|zygote", re.IGNORECASE)
REACH_PROBE = ("sh", "-c", 'for path do test -x "$path" || { echo "$path"; exit 1; }; done', "sh")
PROBE_TIMEOUT_S = 10.0
# capability.h: to give a folder to a uid, to take it back, to end its processes, to become it.
NEEDED = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}


@dataclass(frozen=True, slots=True)
class Binary:
    """``shared_uid``: why Chrome runs under the agent's own uid, empty when each has its own; ``no_sandbox``: why
    Chrome's sandbox stays off, empty when it is on.
    """

    path: Path
    shared_uid: str = ""
    no_sandbox: str = ""

    def isolation(self) -> dict[str, str]:
        """What the log and /readyz?verbose say."""
        return {
            "uid": "shared" if self.shared_uid else "own",
            "sandbox": "off" if self.no_sandbox else "on",
            "detail": "; ".join(why for why in (self.shared_uid, self.no_sandbox) if why),
        }

    def prefix(self, user: ChromeUser) -> list[str]:
        """What Chrome is started through: it dies with the agent, and takes its uid before that is armed
        (a change of uid would clear the parent-death signal, prctl(2)).
        """
        words = ["setpriv", "--pdeathsig", "KILL"]
        if user.uid != os.geteuid():
            words += ["--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups"]
            words += ["--no-new-privs", "--inh-caps=-all"]
        return [*words, "--"]


def find(settings: Settings, work: Path) -> Binary:
    """``work``: the folder that Chrome's own will be made in. Raises AgentError with what to install or set."""
    if shutil.which("setpriv") is None:
        raise AgentError("setpriv is missing: install the package util-linux")
    path = _chrome(settings.chrome)
    first = settings.chrome_uids[0]
    shared = _why_shared(ChromeUser(first, first), path, work)
    if shared and settings.recycle == "spare":
        raise AgentError(
            "FARMAGENT_RECYCLE=spare keeps two Chromes at once, and each needs a uid of its own, or one caller's could "
            f"write into the next one's: {shared}. Set FARMAGENT_RECYCLE=fresh"
        )
    user = ChromeUser(os.geteuid(), os.getegid()) if shared else ChromeUser(first, first)
    return Binary(path, shared, _no_sandbox(settings, user))


def _chrome(wanted: Path | None) -> Path:
    if wanted is not None:
        if not os.access(wanted, os.X_OK):
            raise AgentError(f"FARMAGENT_CHROME={wanted} cannot be executed")
        return wanted
    for candidate in CANDIDATES:
        if os.access(candidate, os.X_OK):
            return Path(candidate)
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise AgentError("no Chrome found: install chromium, or name its binary in FARMAGENT_CHROME")


def _why_shared(user: ChromeUser, chrome: Path, work: Path) -> str:
    """Why no Chrome here can have a uid of its own; empty when it can."""
    lacking = _lacking()
    if lacking:
        return f"this agent may not change uids: it lacks the capabilities {', '.join(lacking)}"
    prefix = Binary(chrome).prefix(user)
    why = _tried([*prefix, "true"])
    if why:
        return f"uid {user.uid} cannot be taken: {why}"
    why = _tried([*prefix, *REACH_PROBE, str(chrome), str(work)])
    return f"other uids cannot reach {why}" if why else ""


def _lacking(status: Path = Path("/proc/self/status")) -> list[str]:
    try:
        lines = status.read_text().splitlines()
    except OSError:
        lines = []
    effective = int(next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0"), 16)
    return [name for name, bit in NEEDED.items() if not effective >> bit & 1]


def _no_sandbox(settings: Settings, user: ChromeUser) -> str:
    """What is known before the first Chrome: it is the one that tries."""
    if settings.sandbox == "off":
        return "FARMAGENT_SANDBOX=off"
    if user.uid != 0:
        return ""
    why = "Chrome refuses its sandbox as root"
    if settings.sandbox == "on":
        raise AgentError(f"FARMAGENT_SANDBOX=on, but {why}")
    return why


def _tried(command: list[str]) -> str:
    """What a failing command said; empty when it went well."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    return "" if done.returncode == 0 else said or f"exit code {done.returncode}"
