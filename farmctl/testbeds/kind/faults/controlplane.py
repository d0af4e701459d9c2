"""Faults of the control plane itself: the API server taken away, the controllers made slow.

The API server is cut off by a firewall rule of its node, for everybody, the control plane's other parts too, and its
connections are reset: that is what its end looks like from outside, and it is undone in a moment. (Moving its manifest
away takes 30 s to stop and 40 s to come back.) Each step may be done twice, and is, when the way into the node fails.
"""

from functools import partial
from typing import Protocol

from farmctl.errors import StageError
from farmctl.testbeds.base import NotStaged
from farmctl.testbeds.kind.api import pod_status
from farmctl.testbeds.kind.api.limits import again, until
from farmctl.testbeds.kind.api.objects import Api
from farmctl.testbeds.kind.cluster.containers import MARK

API_PORT = 6443
PATIENCE_S, BACK_S = 25.0, 120.0
AGAIN_S = 30.0  # for a step that does not come off
HEARD_S = 12.0  # a kubelet tells its node's state each 10 s
# What ended often of late is started again after up to 300 s; a restarted kubelet has forgotten that.
FORGET = "systemctl restart kubelet"
CONTROLLERS = "kube-controller-manager"
PORTS = (10257, 10259)  # where controllers and scheduler tell their health
HEALTH = "\n".join(
    f"curl --noproxy '*' -sk --max-time 2 https://127.0.0.1:{port}/healthz || true; echo" for port in PORTS
)
MANIFEST = f"/etc/kubernetes/manifests/{CONTROLLERS}.yaml"
FLAG = "--endpointslice-updates-batch-period"
RULE = f"INPUT -p tcp --dport {API_PORT} -m comment --comment {MARK} -j REJECT --reject-with tcp-reset"
CUT = f"""
iptables -w -C {RULE} 2>/dev/null || iptables -w -I {RULE}
ss -K state established sport = :{API_PORT} >/dev/null 2>&1 || true
left() {{ ss -Htn state established sport = :{API_PORT} | wc -l; }}
n=0
while [ "$(left)" -gt 0 ]; do
  # This kernel does not end connections on request: the process's end does, and the kubelet starts another behind the
  # rule. By a signal: the runtime, asked to stop it, may not do it in time on a busy node.
  [ $((n % 20)) -gt 0 ] || pkill -KILL -x kube-apiserver || true
  n=$((n + 1)); [ "$n" -lt 100 ] || {{ echo "$(left) connections are still open" >&2; exit 1; }}
  sleep 0.05
done
"""
MEND = f"while iptables -w -D {RULE} 2>/dev/null; do :; done"


class Shell(Protocol):
    async def run(self, node: str, script: str) -> str: ...


class ControlPlane:
    """``node`` is the control plane's node."""

    def __init__(self, shell: Shell, node: str, api: Api) -> None:
        self._shell, self._node, self._api = shell, node, api

    async def stop_api(self) -> None:
        """Returns when nothing reaches the API server any more. Raises NotStaged."""
        try:
            await again(self._cut, AGAIN_S)
        except NotStaged:
            raise
        except StageError as error:
            raise NotStaged(f"the API server's connections do not end: {error}") from error

    async def _cut(self) -> None:
        await self._shell.run(self._node, CUT)
        if await self._api.ready():
            raise NotStaged("the API server still answers")

    async def start_api(self) -> None:
        """Returns when it answers. Raises NotStaged, or StageError when there is no way into the node."""
        await again(lambda: self._shell.run(self._node, MEND), AGAIN_S)
        try:
            await until(self._api.ready, "", PATIENCE_S)
        except NotStaged:
            await again(lambda: self._shell.run(self._node, FORGET), AGAIN_S)
            await until(self._api.ready, "the API server answers", BACK_S)

    async def until_nodes_ready(self) -> None:
        """Each node is Ready again, and with it its pods: until then their endpoints are not, the door's neither.

        A kubelet whose own watch of its node waits (30 s and more after an outage) does not see that the node counts as
        lost, and says nothing; a restarted one looks at once. Raises NotStaged.
        """

        async def lost() -> list[str]:
            return [
                raw["metadata"]["name"] for raw in await self._api.nodes() if not pod_status.is_ready(raw)
            ]

        async def none_lost() -> bool:
            return not await lost()

        try:
            await until(none_lost, "", HEARD_S)
        except NotStaged:
            for name in await lost():
                await again(partial(self._shell.run, name, FORGET), AGAIN_S)
            await until(none_lost, "each node is Ready", BACK_S)

    async def slices_late(self, delay_s: float) -> bool:
        """Let the EndpointSlice controller batch changes for this long; whether that was a change.

        The controllers' own setting: a change of a pod reaches its slice that much later, at most.
        """
        if await self._shell.run(self._node, late_script(delay_s)) != "changed\n":
            return False
        await self._until_changed(delay_s)
        return True

    async def _until_changed(self, delay_s: float) -> None:
        """The kubelet starts the controllers again from the changed manifest."""
        wanted = f"{FLAG}={delay_s:g}s" if delay_s else ""

        async def runs() -> bool:
            return running_with(await self._shell.run(self._node, COMMAND_LINE), wanted)

        await until(runs, "the controllers run with the new setting", BACK_S)
        await self.until_healthy()

    async def until_healthy(self) -> None:
        """Controllers and scheduler run and say that they are well. Raises NotStaged."""

        async def healthy() -> bool:
            return (await self._shell.run(self._node, HEALTH)).split() == ["ok"] * len(PORTS)

        await until(healthy, "controllers and scheduler are healthy", BACK_S)


COMMAND_LINE = "tr '\\0' ' ' < /proc/$(pgrep -x kube-controller | head -1)/cmdline 2>/dev/null || true"


def running_with(command_line: str, wanted: str) -> bool:
    return bool(command_line) and ((wanted in command_line) if wanted else (FLAG not in command_line))


def late_script(delay_s: float) -> str:
    """Rewrite the manifest, written beside its folder: the kubelet must never see half a file."""
    flag = f"{FLAG}={delay_s:g}s"
    add = f"sed -i '/^    - {CONTROLLERS}$/a\\    - {flag}' \"$new\"\n" if delay_s else ""
    return f"""
new=/etc/kubernetes/farmctl-{CONTROLLERS}.yaml
grep -v -e '{FLAG}=' {MANIFEST} > "$new"
{add}if cmp -s "$new" {MANIFEST}; then rm "$new"; echo same; exit 0; fi
mv "$new" {MANIFEST}
echo changed
"""
