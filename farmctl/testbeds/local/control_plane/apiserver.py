"""The part of the Kubernetes API that a proxy reads: EndpointSlices by list and watch, over plain HTTP on loopback.

It answers as the real one does where a reader could notice: versions are strings that only grow, a forgotten
version is 410, bookmarks carry nothing but a version, a list may come in pieces. Stopping it breaks every
connection at once; what it knew stands when it starts again on the same port.
"""

import asyncio
import base64
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from aiohttp import web

from farmctl.testbeds.local.control_plane import selectors
from farmctl.testbeds.local.control_plane.store import Change, Conflict, Slice, Store, TooOld, labels_of
from farmctl.testbeds.local.control_plane.watches import Bell, Watch, encode, status

SLICES = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
PODS = "/api/v1/namespaces/{namespace}/pods"
WATCH_LONGEST_S = (
    300.0,
    600.0,
)  # --min-request-timeout: a watch that asks for no timeout ends between 1x and 2x
TRUE = frozenset({"1", "true"})


class ApiServer:
    def __init__(
        self,
        store: Store,
        bell: Bell,
        *,
        namespace: str,
        list_pods: Callable[[], list[dict[str, Any]]] = list,
        bookmark_s: float = 5.0,
    ) -> None:
        self._store, self._bell, self._namespace = store, bell, namespace
        self._list_pods, self._bookmark_s = list_pods, bookmark_s
        self._runner: web.AppRunner | None = None
        self._open: set[asyncio.Transport] = set()  # of the watches
        self.port = 0

    @property
    def running(self) -> bool:
        return self._runner is not None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; the first port taken is kept for later starts. Raises OSError when it is in use."""
        if self._runner is not None:
            return
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, self.port or port, reuse_address=True)
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self.port = runner.addresses[0][1]
        self._runner = runner

    async def stop(self) -> None:
        """Close the port and break every connection, watches in mid-stream too."""
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        for site in list(runner.sites):
            await site.stop()
        for transport in list(self._open):
            transport.abort()
        await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_get(SLICES, self._list_or_watch)
        app.router.add_post(SLICES, self._create)
        app.router.add_get(SLICES + "/{name}", self._get)
        app.router.add_put(SLICES + "/{name}", self._replace)
        app.router.add_delete(SLICES + "/{name}", self._delete)
        app.router.add_get(PODS, self._pods)
        app.router.add_get("/readyz", self._ready)
        return app

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _pods(self, request: web.Request) -> web.Response:
        self._check_namespace(request)
        return _answer(
            {
                "kind": "PodList",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(self._store.version)},
                "items": self._list_pods(),
            }
        )

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        self._check_namespace(request)
        try:
            selector = selectors.parse(request.query.get("labelSelector", ""))
        except ValueError as error:
            return _failure(400, "BadRequest", str(error))
        try:
            if request.query.get("watch", "").lower() in TRUE:
                return await self._watch(request, selector)
            return self._list(request, selector)
        except TooOld as error:
            return _failure(410, "Expired", str(error))
        except ValueError as error:
            return _failure(400, "BadRequest", str(error))

    def _list(self, request: web.Request, selector: selectors.Selector) -> web.Response:
        items = [obj for obj in self._store.all() if selector(labels_of(obj))]
        version, limit = self._store.version, int(request.query.get("limit", 0))
        if token := request.query.get("continue"):
            version, after = _read_token(token)
            self._store.since(version)  # raises TooOld: a list in pieces is of one moment
            items = [obj for obj in items if obj["metadata"]["name"] > after]
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            metadata |= {"remainingItemCount": len(items) - limit}
            items = items[:limit]
            metadata |= {"continue": _write_token(version, items[-1]["metadata"]["name"])}
        return _answer(
            {
                "kind": "EndpointSliceList",
                "apiVersion": "discovery.k8s.io/v1",
                "metadata": metadata,
                "items": items,
            }
        )

    async def _watch(self, request: web.Request, selector: selectors.Selector) -> web.StreamResponse:
        query = request.query
        asked = query.get("resourceVersion", "")
        from_now = asked in {"", "0"}
        version = self._store.version if from_now else int(asked)
        self._store.since(version)  # a version too old is told by the status line
        first = [Change(version, "ADDED", obj, {}) for obj in self._store.all()] if from_now else []
        clock = asyncio.get_running_loop().time
        wants_bookmarks = query.get("allowWatchBookmarks", "").lower() in TRUE
        watch = Watch(
            store=self._store,
            bell=self._bell,
            selector=selector,
            version=version,
            ends_at=clock() + float(query.get("timeoutSeconds") or random.uniform(*WATCH_LONGEST_S)),
            bookmark_s=self._bookmark_s if wants_bookmarks else None,
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        with suppress(ConnectionError), self._tracked(request):
            await response.prepare(request)
            await watch.run(response, first)
        return response

    async def _create(self, request: web.Request) -> web.Response:
        self._check_namespace(request)
        try:
            return _answer(self._store.create(_checked(await request.json(), self._namespace)), status=201)
        except Conflict as error:
            return _failure(409, "AlreadyExists", f"endpointslices {error} already exists")
        except ValueError as error:
            return _failure(422, "Invalid", str(error))

    async def _get(self, request: web.Request) -> web.Response:
        self._check_namespace(request)
        obj = self._store.get(request.match_info["name"])
        return _not_found(request) if obj is None else _answer(obj)

    async def _replace(self, request: web.Request) -> web.Response:
        self._check_namespace(request)
        name = request.match_info["name"]
        if self._store.get(name) is None:
            return _not_found(request)
        try:
            obj = _checked(await request.json(), self._namespace)
        except ValueError as error:
            return _failure(422, "Invalid", str(error))
        if obj["metadata"]["name"] != name:
            return _failure(400, "BadRequest", "the name of the object does not match the name on the URL")
        return _answer(self._store.put(obj))

    async def _delete(self, request: web.Request) -> web.Response:
        self._check_namespace(request)
        obj = self._store.delete(request.match_info["name"])
        return _not_found(request) if obj is None else _answer(obj)

    def _check_namespace(self, request: web.Request) -> None:
        if request.match_info["namespace"] != self._namespace:
            raise web.HTTPNotFound(
                text=json.dumps(status(404, "NotFound", "no such namespace on this testbed")),
                content_type="application/json",
            )

    @contextmanager
    def _tracked(self, request: web.Request) -> Iterator[None]:
        transport = request.transport
        if transport is None:
            raise ConnectionError("the reader is gone")
        self._open.add(transport)
        try:
            yield
        finally:
            self._open.discard(transport)


def _checked(obj: Any, namespace: str) -> Slice:
    """Raise ValueError for what the real API would not take."""
    if not isinstance(obj, dict) or obj.get("kind") != "EndpointSlice":
        raise ValueError("kind must be EndpointSlice")
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ValueError("metadata.name: Required value")  # noqa: TRY004 - of the wire, not of a caller
    if len(obj.get("endpoints") or []) > 1000:
        raise ValueError("endpoints: Too many: must have at most 1000 items")
    return {**obj, "metadata": {**metadata, "namespace": namespace}}


def _answer(obj: Any, status: int = 200) -> web.Response:
    return web.Response(body=encode(obj), status=status, content_type="application/json")


def _failure(code: int, reason: str, message: str) -> web.Response:
    return _answer(status(code, reason, message), status=code)


def _not_found(request: web.Request) -> web.Response:
    return _failure(404, "NotFound", f"endpointslices {request.match_info['name']} not found")


def _write_token(version: int, after: str) -> str:
    return base64.urlsafe_b64encode(encode([version, after])).decode()


def _read_token(token: str) -> tuple[int, str]:
    """Raise ValueError for a token that is not ours."""
    version, after = msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str])
    return version, after
