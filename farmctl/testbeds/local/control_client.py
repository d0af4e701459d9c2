"""Talks to a supervisor over its unix socket. Errors of the farm arrive as what they were; silence is a StageError."""

import json
from pathlib import Path
from typing import Any

import aiohttp

from farmctl.errors import StageError, UsageError
from farmctl.testbeds.base import NoFarm, NotStaged

STATE_LIMIT_S = 10.0
VERB_LIMIT_S = 1200.0  # a proxy that drains, a farm that is restored
_ERRORS: dict[str, type[StageError] | type[UsageError]] = {
    "NotStaged": NotStaged,
    "StageError": StageError,
    "UsageError": UsageError,
}


class ControlClient:
    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)

    async def state(self) -> dict[str, Any]:
        """Raises NoFarm."""
        answer: dict[str, Any] = await self._ask("GET", "/state", None, STATE_LIMIT_S)
        return answer

    async def pods(self) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = await self._ask("GET", "/pods", None, STATE_LIMIT_S)
        return answer

    async def verb(self, name: str, **arguments: Any) -> Any:
        """Raises NoFarm, or what the verb raised."""
        return await self._ask("POST", f"/verbs/{name}", arguments, VERB_LIMIT_S)

    async def shutdown(self) -> None:
        await self._ask("POST", "/shutdown", None, STATE_LIMIT_S)

    async def _ask(self, method: str, path: str, body: Any, limit_s: float) -> Any:
        limit = aiohttp.ClientTimeout(total=limit_s)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(self._socket), timeout=limit
                ) as session,
                session.request(method, f"http://farm{path}", json=body) as answer,
            ):
                text = await answer.text()
                status = answer.status
        except aiohttp.ClientConnectorError as error:
            raise NoFarm from error
        except TimeoutError as error:
            raise StageError(
                f"the supervisor did not answer {path} in {limit_s:g} s", hint="farmctl down"
            ) from error
        except aiohttp.ClientError as error:
            raise StageError(
                f"the supervisor went away during {path}",
                hint="farmctl logs supervisor says why; farmctl up mends it",
            ) from error
        return _result(path, status, text)


def _result(path: str, status: int, text: str) -> Any:
    if status == 200:
        return json.loads(text)
    if status == 409:
        told = json.loads(text)
        raise _ERRORS.get(told["error"], StageError)(told["message"], hint=told["hint"])
    raise StageError(
        f"the supervisor failed at {path}: {status} {text[:200]}", hint="farmctl logs supervisor"
    )
