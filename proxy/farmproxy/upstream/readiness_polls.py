"""The core's questions to agents: GET /readyz, whose answer says whether the pod is free and how its lease ended."""

from collections.abc import Callable

import msgspec
from farmwire import paths
from farmwire.reasons import Busy, End

from farmproxy.core.commands import AskAgent, StopAsking
from farmproxy.core.events import AgentSaid, Event
from farmproxy.registry.lease_log import Endings
from farmproxy.upstream.agent_client import Asker, Heard, Question

_BUSY = {str(busy): busy for busy in Busy}
_ENDS = {str(end): end for end in End}


class _Ready(msgspec.Struct):
    """An agent's /readyz, in 200 and 503 alike."""

    lease: str | None = None
    end: str | None = None
    reason: str | None = None


_decode = msgspec.json.Decoder(_Ready).decode


class Questions:
    """At most one a pod; ``tell`` and ``endings`` are set by the driver."""

    __slots__ = ("_asker", "_under_way", "endings", "tell")

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._under_way: dict[tuple[str, str], tuple[Question, str | None]] = {}
        self.tell: Callable[[Event], None]
        self.endings: Endings

    def ask(self, command: AskAgent) -> None:
        key = (command.pool, command.pod)
        target = f"{paths.READYZ}?wait={command.wait_s:.3f}"
        if command.lease is not None:
            target += f"&lease={command.lease}"
            self.endings.asked(command.lease)

        def heard(answer: Heard) -> None:
            self._heard(key, answer)

        question = self._asker.ask((command.address, command.port), target, command.wait_s, heard)
        self._under_way[key] = (question, command.lease)

    def stop(self, command: StopAsking) -> None:
        question, lease = self._under_way.pop((command.pool, command.pod))
        question.cancel()
        if lease is not None:
            self.endings.heard(lease, None, reached=True)

    def _heard(self, key: tuple[str, str], answer: Heard) -> None:
        _, lease = self._under_way.pop(key)
        ready = _read(answer)
        if lease is not None:
            told = _ENDS.get(ready.end or "") if ready.lease == lease else None
            self.endings.heard(lease, told, reached=answer.reached)
        free = {200: True, 503: False}.get(answer.status)
        busy = _BUSY.get(ready.reason or "") if free is False else None
        self.tell(AgentSaid(*key, free, busy))


def _read(answer: Heard) -> _Ready:
    try:
        return _decode(answer.body)
    except (msgspec.MsgspecError, RecursionError):  # nested too deeply
        return _Ready()
