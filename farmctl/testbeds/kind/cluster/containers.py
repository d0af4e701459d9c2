"""What is done to a pod's processes and packets on its node, by crictl, ctr and iptables inside the node container.

Every script can be run again, and what it leaves is found by a mark of its own, so that ``MENDING`` undoes all of it
on a node without knowing what was done.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from farmctl.errors import StageError
from farmctl.images.engines import Engine
from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.cluster import nodes

MARK = "farmctl-fault"  # comment of every firewall rule of ours
CRI_UID = "io.kubernetes.pod.uid"
# Chrome's own sandbox puts processes into PID namespaces of their own, but the cgroup holds them all.
CHROMES = r"""
chromes() {
  for status in /proc/[0-9]*/cgroup; do
    pid=${status#/proc/}; pid=${pid%/cgroup}
    if grep -q "$1" "$status" 2>/dev/null; then
      case $(cat "/proc/$pid/comm" 2>/dev/null) in chrom*) echo "$pid";; esac
    fi
  done
}
alive() { for pid in $(chromes "$1"); do grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null && echo "$pid"; done; }
"""
MENDING = rf"""
for chain in FORWARD INPUT; do
  iptables -w -S "$chain" | grep -e '{MARK}' | sed 's/^-A/-D/' | while read -r rule; do eval "iptables -w $rule"; done
done
ctr -n k8s.io task ls | awk '$3 == "PAUSED" {{print $1}}' | while read -r id; do ctr -n k8s.io task resume "$id"; done
for status in /proc/[0-9]*/status; do
  if grep -q '^State:.T' "$status" 2>/dev/null; then
    case $(cat "${{status%/status}}/comm" 2>/dev/null) in
      chrom*|kube-controller*) pid=${{status#/proc/}}; kill -CONT "${{pid%/status}}" 2>/dev/null || true;;
    esac
  fi
done
"""


@dataclass(frozen=True, slots=True)
class Container:
    """One start of a pod's container; ``attempt`` counts them from 0."""

    id: str
    pod_uid: str
    running: bool
    attempt: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod runs."""

    node: str
    uid: str
    ip: str = ""


class Containers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self, node: str, script: str) -> str:
        """Run a shell script in the node; its stdout. Raises StageError."""
        return await asyncio.to_thread(nodes.sh, self._engine, node, script)

    async def listed(self, node: str) -> list[Container]:
        """Every container the node's runtime knows, dead ones too."""
        return parsed(json.loads(await self.run(node, "crictl ps -a -o json")))

    async def running(self, place: Place) -> list[Container]:
        found = await self.listed(place.node)
        return [each for each in found if each.pod_uid == place.uid and each.running]

    async def kill(self, place: Place) -> float:
        """SIGKILL all processes of the pod, and return when they are gone; the time of the signal. Raises NotStaged."""
        ids = " ".join(each.id for each in await self.running(place))
        if not ids:
            return time.time()
        try:
            return float(await self.run(place.node, kill_script(ids)))
        except StageError as error:
            raise NotStaged(f"the pod's processes do not end: {error}") from error

    async def freeze(self, place: Place, what: Literal["pod", "chrome"]) -> None:
        """Stop all the pod's processes, or only its Chrome. Raises NotStaged."""
        one = await self._one(place)
        script = f"ctr -n k8s.io task pause {one.id}" if what == "pod" else stop_chrome_script(one.id)
        await self._staged(place, script, f"the {what} does not freeze")

    async def thaw(self, place: Place) -> None:
        for each in await self.running(place):
            await self.run(place.node, thaw_script(each.id))

    async def kill_chrome(self, place: Place) -> None:
        one = await self._one(place)
        await self._staged(place, kill_chrome_script(one.id), "no Chrome runs there, or it does not end")

    async def cut_off(self, place: Place) -> None:
        """Drop what the node would forward to and from the pod; the kubelet's own probes still reach it."""
        if not place.ip:
            raise NotStaged("the pod has no address yet")
        rules = [f"iptables -w -I FORWARD {way} {place.ip} {_marked()} -j DROP" for way in ("-s", "-d")]
        await self._staged(place, "\n".join(rules), "the packets cannot be dropped")

    async def mend(self, place: Place) -> None:
        rules = [
            f"while iptables -w -D FORWARD {way} {place.ip} {_marked()} -j DROP 2>/dev/null; do :; done"
            for way in ("-s", "-d")
        ]
        await self.run(place.node, "\n".join(rules))

    async def mend_all(self, names: Sequence[str]) -> None:
        """Undo everything of ours in these nodes."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self.run(name, MENDING))

    async def accepts(self, node: str, address: str) -> bool:
        """Whether a connection from the node to host:port is made."""
        host, _, port = address.rpartition(":")
        asked = f"timeout 1 bash -c ': < /dev/tcp/{host}/{port}' 2>/dev/null && echo yes || true"
        return "yes" in await self.run(node, asked)

    async def refuses(self, node: str, address: str) -> bool:
        """Whether a connection from the node to host:port is refused at once: nothing listens there."""
        host, _, port = address.rpartition(":")
        asked = f"timeout 3 bash -c ': < /dev/tcp/{host}/{port}' 2>&1 || true"
        return "refused" in await self.run(node, asked)

    async def _one(self, place: Place) -> Container:
        found = await self.running(place)
        if not found:
            raise NotStaged("no container of the pod runs just now")
        return found[0]

    async def _staged(self, place: Place, script: str, message: str) -> None:
        try:
            await self.run(place.node, script)
        except StageError as error:
            raise NotStaged(f"{message}: {error}") from error


def parsed(answer: Any) -> list[Container]:
    """Read `crictl ps -a -o json`."""
    return [
        Container(
            id=each["id"],
            pod_uid=each["labels"].get(CRI_UID, ""),
            running=each["state"] == "CONTAINER_RUNNING",
            attempt=int(each["metadata"].get("attempt") or 0),
        )
        for each in answer["containers"]
    ]


def _marked() -> str:
    return f"-m comment --comment {MARK}"


def kill_script(ids: str) -> str:
    # A task that is gone meanwhile is what was asked for; that all are gone is looked at below.
    return f"""
for id in {ids}; do
  ctr -n k8s.io task resume "$id" >/dev/null 2>&1 || true
done
date +%s.%N
for id in {ids}; do
  ctr -n k8s.io task kill -a -s SIGKILL "$id" >/dev/null 2>&1 || true
done
for id in {ids}; do
  n=0
  while grep -qs "$id" /proc/[0-9]*/cgroup; do
    n=$((n + 1)); [ "$n" -lt 100 ] || {{ echo "processes of $id are still there" >&2; exit 1; }}
    sleep 0.05
  done
done
"""


def stop_chrome_script(container: str) -> str:
    return f"""{CHROMES}
found=$(alive {container}); [ -n "$found" ] || {{ echo "no Chrome" >&2; exit 1; }}
kill -STOP $found
for pid in $found; do
  grep -q '^State:.[TtZX]' "/proc/$pid/status" || {{ sleep 0.2; grep -q '^State:.[TtZX]' "/proc/$pid/status"; }}
done
"""


def kill_chrome_script(container: str) -> str:
    return f"""{CHROMES}
found=$(alive {container}); [ -n "$found" ] || {{ echo "no Chrome" >&2; exit 1; }}
kill -KILL $found 2>/dev/null || true
for pid in $found; do
  n=0
  while grep -qs '^State:.[^ZX]' "/proc/$pid/status"; do
    n=$((n + 1)); [ "$n" -lt 100 ] || {{ echo "process $pid is still there" >&2; exit 1; }}
    sleep 0.05
  done
done
"""


def thaw_script(container: str) -> str:
    return f"""{CHROMES}
ctr -n k8s.io task resume {container} 2>/dev/null || true
for pid in $(chromes {container}); do kill -CONT "$pid" 2>/dev/null || true; done
"""
