"""The supervisor's control API: HTTP and JSON over a unix socket in the private state folder.

GET /state says everything, GET /pods only the pods (it is asked often); POST /verbs/NAME does one verb, its body the arguments; POST /shutdown ends the farm.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from farmctl.errors import FarmctlError, StageError
from farmctl.testbeds.local.control_plane.plane import Plane
from farmctl.testbeds.local.verbs import Verbs

VERBS = frozenset(
    name for name, _ in inspect.getmembers(Verbs, inspect.iscoroutinefunction) if name[0] != "_"
)


class ControlServer:
    def __init__(self, plane: Plane, verbs: Verbs, *, stop: Callable[[], None]) -> None:
        self._plane, self._verbs, self._stop = plane, verbs, stop

    async def run(self, socket: Path) -> None:
        """Serve until cancelled."""
        app = web.Application(middlewares=[_told])
        app.router.add_get("/state", self._state)
        app.router.add_get("/pods", self._pods)
        app.router.add_post("/verbs/{name}", self._verb)
        app.router.add_post("/shutdown", self._shutdown)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            socket.unlink(missing_ok=True)
            await web.UnixSite(runner, str(socket)).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
            socket.unlink(missing_ok=True)

    async def _state(self, _: web.Request) -> web.Response:
        return _answer(await state_of(self._plane))

    async def _pods(self, _: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        return _answer([pod.shown(now) for pod in self._plane.pods.values()])

    async def _verb(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in VERBS:
            raise StageError(f"no verb {name!r} on the local testbed")
        arguments = json.loads(await request.read() or b"{}")
        verb = getattr(self._verbs, name)
        try:
            bound = inspect.signature(verb, eval_str=True).bind(**arguments)
            for key, parameter in bound.signature.parameters.items():
                if key in bound.arguments:
                    bound.arguments[key] = msgspec.convert(bound.arguments[key], parameter.annotation)
        except (TypeError, msgspec.ValidationError) as error:
            raise StageError(f"{name}: {error}") from error
        return _answer(await verb(*bound.args, **bound.kwargs))

    async def _shutdown(self, _: web.Request) -> web.Response:
        self._stop()
        return _answer(None)


async def state_of(plane: Plane) -> dict[str, Any]:
    now = asyncio.get_running_loop().time()
    pods = list(plane.pods.values())
    return {
        "settings": plane.settings,
        "setup": plane.setup,
        "wanted": plane.wanted,
        "scaling": plane.scaling,
        "settled": plane.settled(),
        "pods": [pod.shown(now) for pod in pods],
        "readiness": plane.publisher.readiness(pods),
        "proxy": {
            "ready": await plane.proxy.ready(),
            "pid": plane.proxy.pid,
            "restarts": plane.proxy.restarts,
            "starts": plane.proxy.starts,
        },
        "api": f"http://127.0.0.1:{plane.api.port}",
        "api_running": plane.api.running,
    }


@web.middleware
async def _told(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """An error of the farm travels by name, so that the client raises the same one."""
    try:
        return await handler(request)
    except FarmctlError as error:
        body = {"error": type(error).__name__, "message": str(error), "hint": error.hint}
        return web.json_response(body, status=409)


def _answer(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value, enc_hook=str), content_type="application/json")
