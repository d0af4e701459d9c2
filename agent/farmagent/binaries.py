"""Where Chrome is, who it runs as, and whether its sandbox works here. Found once, at start."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

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
# What Chrome's own sandbox needs: user, pid and network namespaces, with capabilities inside them.
SANDBOX_PROBE = ("unshare", "--user", "--map-root-user", "--pid", "--net", "--fork", "true")
PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ChromeUser:
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Binary:
    """``user`` None: the agent's own. ``no_sandbox``: why Chrome's sandbox stays off, empty when it is on."""

    path: Path
    user: ChromeUser | None
    no_sandbox: str = ""

    def prefix(self) -> list[str]:
        """What Chrome is started through: it dies with the agent, and takes its uid before that is armed
        (a change of uid would clear the parent-death signal, prctl(2)).
        """
        words = ["setpriv", "--pdeathsig", "KILL"]
        if self.user is not None:
            words += ["--reuid", str(self.user.uid), "--regid", str(self.user.gid), "--clear-groups"]
            words += ["--no-new-privs", "--inh-caps=-all"]
        return [*words, "--"]


def find(settings: Settings) -> Binary:
    """Raises AgentError with what to install or set."""
    if shutil.which("setpriv") is None:
        raise AgentError("setpriv is missing: install the package util-linux")
    user = _user(settings.chrome_user)
    path = _chrome(settings.chrome)
    return Binary(path, user, _no_sandbox(settings, Binary(path, user)))


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


def _user(name: str) -> ChromeUser | None:
    if not name:
        return None
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        user = ChromeUser(entry.pw_uid, entry.pw_gid)
    except KeyError as error:
        if not name.isdecimal():
            raise AgentError(f"FARMAGENT_CHROME_USER={name} is no user of this machine") from error
        user = ChromeUser(int(name), int(name))
    if user.uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise AgentError("FARMAGENT_CHROME_USER needs an agent that runs as root; leave it empty")
    return user


def _no_sandbox(settings: Settings, binary: Binary) -> str:
    if settings.sandbox == "off":
        return "FARMAGENT_SANDBOX=off"
    if binary.user is None and os.geteuid() == 0:
        why = "Chrome refuses its sandbox as root: set FARMAGENT_CHROME_USER"
    else:
        why = _probe(binary)
    if why and settings.sandbox == "on":
        raise AgentError(f"FARMAGENT_SANDBOX=on, but {why}")
    return why


def _probe(binary: Binary) -> str:
    try:
        done = subprocess.run(
            [*binary.prefix(), *SANDBOX_PROBE],
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the sandbox cannot be probed: {error}"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode(errors="replace").strip()
    return f"this machine forbids the namespaces that the sandbox needs: {said}"
