"""What pods said, the dead ones' too: every log file in a node is linked into a folder of our own while its pod lives.

The kubelet removes a pod's files with the pod. A hard link to one that is still written holds all that is written
until the end, so it is enough to link once in a pod's life: every verb that can end a pod links first.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farmctl.errors import StageError
from farmctl.testbeds.kind.cluster.containers import Containers
from farmctl.testbeds.log_files import written_at

KEPT = "/var/log/farmctl-kept"
KEPT_DAYS = 1
HEAD = "==> "
PARTIAL = "P"
# The kubelet's folders are NAMESPACE_POD_UID/CONTAINER/N.log (kuberuntime, BuildPodLogsDirectory).
LINK = f"""
mkdir -p {KEPT}
cd /var/log/pods 2>/dev/null || exit 0
find . -path './NAMESPACE_*' -type f -name '*.log*' -printf '%i %P\\n' | while read -r inode path; do
  folder="{KEPT}/${{path%/*}}"
  [ -e "$folder/$inode.log" ] || {{ mkdir -p "$folder"; ln "$path" "$folder/$inode.log" 2>/dev/null || true; }}
done
"""
READ = f"""
cd {KEPT} 2>/dev/null || exit 0
find . -type f -mtime +{KEPT_DAYS} -delete
find . -type f -newermt '@MARK' -printf '%P\\n' | sort | while read -r path; do
  printf '{HEAD}%s\\n' "$path"; cat "$path"; echo
done
"""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One log file's lines, in the order they were written."""

    pod: str
    container: str
    lines: list[str]


class Witnesses:
    def __init__(self, containers: Containers, namespace: str) -> None:
        self._containers = containers
        self._namespace = namespace

    async def keep(self, names: Sequence[str]) -> None:
        """Link what the pods of these nodes write. A node that is away has nothing new to say."""
        await self._each(names, LINK.replace("NAMESPACE", self._namespace))

    async def since(self, names: Sequence[str], mark: float, container: str) -> dict[str, list[str]]:
        """JSON lines written at or after wall-clock ``mark``, by pod."""
        link = LINK.replace("NAMESPACE", self._namespace)
        # A file's time may be a fraction older than the line in it; the lines' own times decide.
        read = READ.replace("MARK", f"{mark - 1:.3f}")
        found: dict[str, list[str]] = {}
        for text in await self._each(names, f"({link})\n{read}"):
            for spoken in parsed(text):
                if spoken.container == container:
                    found.setdefault(spoken.pod, []).extend(since(spoken.lines, mark))
        return found

    async def _each(self, names: Sequence[str], script: str) -> list[str]:
        async def one(name: str) -> str:
            try:
                return await self._containers.run(name, script)
            except StageError:
                return ""

        return list(await asyncio.gather(*(one(name) for name in names)))


def parsed(text: str) -> list[Spoken]:
    """Read what ``READ`` printed: a head for each file, then its lines in the CRI's form."""
    found: list[Spoken] = []
    raw: list[str] = []
    for line in [*text.splitlines(), HEAD]:
        if not line.startswith(HEAD):
            raw.append(line)
            continue
        if found:
            found[-1].lines.extend(unwrapped(raw))
        raw.clear()
        folder, _, rest = line.removeprefix(HEAD).partition("/")
        if rest:
            found.append(Spoken(folder.split("_")[1], rest.partition("/")[0], []))
    return found


def unwrapped(lines: Iterable[str]) -> list[str]:
    """Undo the CRI's log format (time, stream, tag, text): the runtime cuts long lines into pieces tagged P."""
    found: list[str] = []
    begun = ""
    for line in lines:
        parts = line.split(" ", 3)
        if len(parts) < 4:
            continue
        begun += parts[3]
        if parts[2] != PARTIAL:
            found.append(begun)
            begun = ""
    return found


def since(lines: Iterable[str], mark: float) -> list[str]:
    """The lines written at or after ``mark``; one without a time goes with the one before it."""
    return [line for at, line in _timed(lines) if at >= mark]


def in_order(lines: Iterable[str]) -> list[str]:
    """Several processes' lines as one account."""
    return [line for _, line in sorted(_timed(lines), key=lambda each: each[0])]


def _timed(lines: Iterable[str]) -> list[tuple[float, str]]:
    last = 0.0
    timed: list[tuple[float, str]] = []
    for line in lines:
        last = written_at(line) or last
        timed.append((last, line))
    return timed
