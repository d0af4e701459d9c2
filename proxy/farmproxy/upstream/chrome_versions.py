"""Chrome's own words for /json/version, a pool at a time: learnt from any agent, kept, asked again when old.

Asking never delays an answer: whoever asks gets what is known now.
"""

from collections.abc import Callable

import msgspec
from farmwire import paths

from farmproxy.core.events import PodsChanged
from farmproxy.upstream.agent_client import Address, AgentClient, Response

KEPT_S = 60.0
RETRY_S = 5.0  # after an agent that could not be asked
_FIELDS = ("Browser", "Protocol-Version", "User-Agent", "V8-Version", "WebKit-Version")
SYNTHETIC = {
    "Browser": "Chrome/0.0.0.0",
    "Protocol-Version": "1.3",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/0.0.0.0 Safari/537.36",
    "V8-Version": "0.0.0.0",
    "WebKit-Version": "537.36",
}


class Versions:
    def __init__(self, agent_client: AgentClient, clock: Callable[[], float]) -> None:
        self._agent_client = agent_client
        self._clock = clock
        self._learnt: dict[str, dict[str, str]] = {}
        self._ask_after: dict[str, float] = {}
        self._pods: dict[str, dict[str, Address]] = {}  # ready ones, by key

    def of(self, pool: str) -> dict[str, str]:
        """What is known of this pool's Chrome; what is old is asked for meanwhile."""
        self._learn(pool)
        return self._learnt.get(pool, SYNTHETIC)

    def pods_changed(self, event: PodsChanged) -> None:
        pods = self._pods.setdefault(event.pool, {})
        for seen in event.seen:
            if seen.ready and not seen.terminating:
                pods[seen.key] = (seen.address, seen.port)
            else:
                pods.pop(seen.key, None)
        for key in event.gone:
            pods.pop(key, None)
        if event.pool not in self._learnt:
            self._learn(event.pool)

    def _learn(self, pool: str) -> None:
        now, pods = self._clock(), self._pods.get(pool)
        if not pods or now < self._ask_after.get(pool, 0.0):
            return
        self._ask_after[pool] = now + RETRY_S
        # The last one seen ready: the likeliest to be there.
        address = pods[next(reversed(pods))]

        def on_response(response: Response) -> None:
            self._on_response(pool, response)

        self._agent_client.ask(address, paths.JSON_VERSION, 0.0, on_response)

    def _on_response(self, pool: str, response: Response) -> None:
        if response.status != 200:
            return
        try:
            told = msgspec.json.decode(response.body, type=dict[str, object])
        except (msgspec.MsgspecError, RecursionError):  # nested too deeply
            return
        found = {name: value for name in _FIELDS if isinstance(value := told.get(name), str)}
        if "Browser" in found:
            self._learnt[pool] = {**SYNTHETIC, **found}
            self._ask_after[pool] = self._clock() + KEPT_S
