"""Starts an agent or the proxy as this testbed wants them: their settings, keys and folders."""

import asyncio
import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from farmctl.testbeds.local.control_plane.pods import LivePod
from farmctl.testbeds.local.processes import children
from farmctl.testbeds.local.processes.children import Child
from farmctl.testbeds.local.settings import LocalSettings
from farmctl.testbeds.local.state import PROXY_LOG, StateFolder
from farmctl.testbeds.log_files import Logs

LINGER_S = "0.5"  # nothing has to hear that this proxy goes: one machine, one door


class Launcher:
    def __init__(self, settings: LocalSettings, folder: StateFolder) -> None:
        self._settings, self._folder = settings, folder
        self._key = folder.agent_key
        self.agent_env: dict[str, str] = {}  # over the setup's own, for new pods

    def make_key(self) -> None:
        """A secret of proxy and agents, so that nothing else on this machine can take a lease from a pod."""
        handle = os.open(self._key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(16) + "\n")

    def folder(self, pod: LivePod) -> Path:
        return self._settings.work / pod.name

    async def agent(self, pod: LivePod) -> Child:
        """Raises OSError when the machine has no room for it."""
        folder = self.folder(pod)
        await asyncio.to_thread(_make_folder, folder)
        chrome = self._settings.chrome
        if pod.unready_until is not None:
            chrome = str(_slow_chrome(folder, chrome, pod.unready_until))
        env = {
            "FARMAGENT_LISTEN": pod.address,
            "FARMAGENT_POD": f"{self._settings.namespace}/{pod.name}/{pod.uid}",
            "FARMAGENT_CHROME": chrome,
            # The harness' own pages live on loopback.
            "FARMAGENT_PRIVATE_TARGETS": "allow",
            "FARMAGENT_WORK_DIR": str(folder / "chrome"),  # the agent wipes it
            "FARMAGENT_GRACE_S": f"{self._settings.grace_s:g}",
            "FARMAGENT_KEY_FILE": str(self._key),
            **self._settings.setup.agent_env,
            **self.agent_env,
        }
        return await self._start(self._settings.agent_command, env, self._folder.pod_logs, pod.name)

    async def proxy(self, env: Mapping[str, str], api_port: int) -> Child:
        settings = self._settings
        own = {
            "FARMPROXY_POOLS": f"{settings.pool}={settings.service}",
            "FARMPROXY_NAMESPACE": settings.namespace,
            "FARMPROXY_PORT_NAME": settings.port_name,
            "FARMPROXY_DOOR": settings.door,
            "FARMPROXY_ADMIN": settings.admin,
            "FARMPROXY_KUBE_API": f"http://127.0.0.1:{api_port}",
            "FARMPROXY_AGENT_KEY_FILE": str(self._key),
            "FARMPROXY_LINGER_S": LINGER_S,
            **settings.setup.proxy_env,
            **env,
        }
        return await self._start(settings.proxy_command, own, self._folder.logs, PROXY_LOG)

    async def _start(self, command: tuple[str, ...], env: Mapping[str, str], logs: Logs, log: str) -> Child:
        return await children.start(command, env=env, token=self._settings.token, log=log, logs=logs)


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # Chrome, under another uid, has to reach its own folder below


def _slow_chrome(folder: Path, chrome: str, unready_until: float) -> Path:
    """A program in Chrome's place that first waits until wall-clock ``unready_until`` (infinite: for ever).

    The agent may give up and start it again meanwhile, so the moment counts, not the wait.
    """
    script = folder / "slow-chrome"
    over = "false" if unready_until == float("inf") else f'[ "$(date +%s)" -ge {unready_until:.0f} ]'
    script.write_text(f'#!/bin/sh\nuntil {over}; do sleep 0.2; done\nexec {shlex.quote(chrome)} "$@"\n')
    script.chmod(0o755)
    return script
