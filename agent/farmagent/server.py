"""The agent's one port: probes and pages for proxy, kubelet and Prometheus, and GET /lease.

The rule: no web page may drive a pod, so a request with an Origin, or whose Host is not an address (a rebound
name), is refused before anything else is looked at. /livez never depends on being free.
"""

import asyncio
from contextlib import suppress
from ipaddress import ip_address
from typing import Self

from farmwire import paths
from farmwire.headers import UPGRADE_TOKEN

from farmagent import cancellation
from farmagent.errors import AgentError
from farmagent.http.connections import Connection, PeerGone
from farmagent.http.heads import BadRequest, HttpServerSide, Request
from farmagent.lease.leasing import Leasing
from farmagent.lease.metrics import CONTENT_TYPE
from farmagent.lease.pod import Pod
from farmagent.lease.states import State
from farmagent.logs import log

IDLE_S = 120.0  # a kept-alive connection between two requests
WAIT_LIMIT_S = 600.0
CLOSE = ("Connection", "close")
NO_STORE = ("Cache-Control", "no-store")


class AgentServer:
    """``async with``: listening inside, every connection closed after it. ``address`` is what it listens on.
    Entering raises AgentError when the address cannot be had.
    """

    def __init__(self, pod: Pod, leasing: Leasing) -> None:
        self.address: tuple[str, int] = pod.settings.listen
        self._pod = pod
        self._leasing = leasing
        self._settings = pod.settings
        self._connections: set[Connection] = set()
        self._group = asyncio.TaskGroup()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        host, port = self._settings.listen
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self._accept, stall_s=self._settings.stall_s),
                host,
                port,
                backlog=512,
                start_serving=False,
            )
        except OSError as error:
            raise AgentError(f"cannot serve on {host}:{port}: {error}; set FARMAGENT_LISTEN") from error
        await self._group.__aenter__()
        await self._server.start_serving()
        self.address = self._server.sockets[0].getsockname()[:2]
        log.info("listening", address=f"{self.address[0]}:{self.address[1]}")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        await self._group.__aexit__(None, None, None)

    def _accept(self, connection: Connection) -> None:
        if len(self._connections) >= self._settings.connection_limit:
            connection.abort()
            return
        self._connections.add(connection)
        self._group.create_task(self._serve(connection))

    async def _serve(self, connection: Connection) -> None:
        try:
            await self._requests(HttpServerSide(connection))
        except PeerGone:
            pass
        except Exception:  # a defect must cost this connection, not the pod
            log.exception("connection-fault")
        finally:
            connection.close()
            self._connections.discard(connection)

    async def _requests(self, http: HttpServerSide) -> None:
        try:
            while True:
                request = await http.next_request(idle_s=IDLE_S, head_s=self._settings.head_timeout_s)
                if request is None or not await self._answer(http, request) or not http.is_reusable():
                    break
        except BadRequest as refusal:
            if http.can_answer():
                body = {"reason": "bad-request", "detail": refusal.detail}
                await http.answer_json(refusal.status, body, [CLOSE])
        await http.connection.finish()

    async def _answer(self, http: HttpServerSide, request: Request) -> bool:
        """Whether the connection is still HTTP."""
        detail = foreign(request)
        if detail:
            await http.answer_json(403, {"reason": "origin", "detail": detail}, [CLOSE])
            return False
        if request.path == paths.LEASE:
            return await self._lease(http, request)
        if request.method not in ("GET", "HEAD"):
            await http.answer_json(
                405, {"reason": "bad-request", "detail": "GET only"}, [("Allow", "GET"), CLOSE]
            )
            return False
        match request.path:
            case paths.READYZ:
                await self._readyz(http, request)
            case paths.LIVEZ:
                alive = self._pod.state is not State.BROKEN
                await http.answer_json(200 if alive else 500, {"alive": alive, "state": self._pod.state})
            case paths.METRICS:
                await http.answer(200, self._pod.metrics.page(), content_type=CONTENT_TYPE)
            case paths.JSON_VERSION | "/json/version/":
                await self._version(http, request)
            case _:
                detail = f"nothing at {request.path} without a lease; ask for one at {paths.LEASE}"
                await http.answer_json(404, {"reason": "not-found", "detail": detail})
        return True

    async def _lease(self, http: HttpServerSide, request: Request) -> bool:
        if request.method != "GET" or not request.asks_upgrade_to(UPGRADE_TOKEN):
            detail = f"{paths.LEASE} wants GET with Upgrade: {UPGRADE_TOKEN}"
            await http.answer_json(
                426, {"reason": "bad-request", "detail": detail}, [("Upgrade", UPGRADE_TOKEN), CLOSE]
            )
            return False
        return await self._leasing.serve(http, request)

    async def _readyz(self, http: HttpServerSide, request: Request) -> None:
        """With ?wait the question is always "free?", whatever FARMAGENT_READY says: only proxies wait."""
        log.flush()  # the kubelet comes by each second
        ready = self._pod.is_ready()
        if "wait" in request.query:
            wait_s = _wait_s(request.query["wait"])
            ready = self._pod.busy is None
            if not ready:
                with suppress(cancellation.OverError):
                    ready = await cancellation.unless(self._pod.until_free(wait_s), http.connection.ended)
        body: dict[str, object] = {"state": self._pod.state}
        if not ready:
            body["reason"] = self._pod.busy
        if "verbose" in request.query:
            body["isolation"] = self._pod.isolation
        if "lease" in request.query:
            lease = request.query["lease"]
            body |= {"lease": lease, "end": self._pod.end_of(lease)}
        await http.answer_json(200 if ready else 503, body, [NO_STORE])

    async def _version(self, http: HttpServerSide, request: Request) -> None:
        """Chrome's own fields, and a socket URL that leads nowhere but to a lease."""
        version = self._pod.version
        if not version:
            await http.answer_json(503, {"reason": self._pod.busy})
            return
        page = {
            "Browser": version.get("product", ""),
            "Protocol-Version": version.get("protocolVersion", ""),
            "User-Agent": version.get("userAgent", ""),
            "V8-Version": version.get("jsVersion", ""),
            "WebKit-Version": f"537.36 ({version.get('revision', '')})",
            "webSocketDebuggerUrl": f"ws://{request.header('host')}{paths.FARM_BROWSER}",
        }
        await http.answer_json(200, page, [NO_STORE])


def foreign(request: Request) -> str:
    """Why this request may come from a web page; empty when it may not."""
    if request.header("origin") is not None:
        return "requests with an Origin are refused"
    host = request.header("host") or ""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    try:
        ip_address(name)
    except ValueError:
        return "the Host must be an address, not a name"
    return ""


def _wait_s(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise BadRequest(400, "wait must be a number of seconds") from error
    if not 0 <= value <= WAIT_LIMIT_S:
        raise BadRequest(400, f"wait must be between 0 and {WAIT_LIMIT_S:g}")
    return value
