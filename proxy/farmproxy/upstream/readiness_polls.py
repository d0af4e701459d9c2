"""The core's questions to agents: GET /readyz, whose answer says whether the pod is free and how its lease ended."""

from collections.abc import Callable

import msgspec
from farmwire import paths
from farmwire.reasons import Busy, End

from farmproxy.core.commands import AskAgent, StopAsking
from farmproxy.core.events import AgentSaid, Event
from farmproxy.registry.lease_log import LeaseLog
from farmproxy.upstream.agent_client import AgentClient, PendingRequest, Response

_BUSY = {str(busy): busy for busy in Busy}
_ENDS = {str(end): end for end in End}


class _Ready(msgspec.Struct):
    """An agent's /readyz, in 200 and 503 alike."""

    lease: str | None = None
    end: str | None = None
    reason: str | None = None


_decode = msgspec.json.Decoder(_Ready).decode


class ReadinessPolls:
    """At most one a pod; ``dispatch`` and ``lease_log`` are set by the driver."""

    __slots__ = ("_agent_client", "_under_way", "dispatch", "lease_log")

    def __init__(self, agent_client: AgentClient) -> None:
        self._agent_client = agent_client
        self._under_way: dict[tuple[str, str], tuple[PendingRequest, str | None]] = {}
        self.dispatch: Callable[[Event], None]
        self.lease_log: LeaseLog

    def ask(self, command: AskAgent) -> None:
        key = (command.pool, command.pod)
        target = f"{paths.READYZ}?wait={command.wait_s:.3f}"
        if command.lease is not None:
            target += f"&lease={command.lease}"
            self.lease_log.asked(command.lease)

        def on_response(response: Response) -> None:
            self._on_response(key, response)

        request = self._agent_client.ask((command.address, command.port), target, command.wait_s, on_response)
        self._under_way[key] = (request, command.lease)

    def stop(self, command: StopAsking) -> None:
        request, lease = self._under_way.pop((command.pool, command.pod))
        request.cancel()
        if lease is not None:
            self.lease_log.heard(lease, None, reached=True)

    def _on_response(self, key: tuple[str, str], response: Response) -> None:
        _, lease = self._under_way.pop(key)
        ready = _read(response)
        if lease is not None:
            told = _ENDS.get(ready.end or "") if ready.lease == lease else None
            self.lease_log.heard(lease, told, reached=response.reached)
        free = {200: True, 503: False}.get(response.status)
        busy = _BUSY.get(ready.reason or "") if free is False else None
        self.dispatch(AgentSaid(*key, free, busy))


def _read(response: Response) -> _Ready:
    try:
        return _decode(response.body)
    except (msgspec.MsgspecError, RecursionError):  # nested too deeply
        return _Ready()
