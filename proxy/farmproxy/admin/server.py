"""HTTP of the admin port. GET and HEAD of five paths; nothing here changes anything, whatever is sent."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from farmwire import paths

from farmproxy.admin.page import CONTENT_SECURITY_POLICY, PAGE
from farmproxy.admin.views import AdminView, readiness, status_json
from farmproxy.config.parsers import HostPort
from farmproxy.observe.metrics import CONTENT_TYPE

CLOSE_LIMIT_S = 1.0  # for answers under way when the process ends
PLAIN = "text/plain; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def admin_server(view: AdminView, address: HostPort) -> AsyncIterator[HostPort]:
    """Serve while the context lasts; gives the address bound (port 0 asks the system for one). OSError when taken."""
    runner = web.AppRunner(
        _application(view), access_log=None, handle_signals=False, shutdown_timeout=CLOSE_LIMIT_S
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, address.host, address.port)
        await site.start()
        host, port, *_ = runner.addresses[0]
        yield HostPort(host, port)
    finally:
        await runner.cleanup()


def _application(view: AdminView) -> web.Application:
    async def livez(_request: web.Request) -> web.Response:
        return _answer(b"ok\n", PLAIN)

    async def readyz(request: web.Request) -> web.Response:
        ready, lines = readiness(view)
        text = lines if not ready or "verbose" in request.query else "ok\n"
        return _answer(text.encode(), PLAIN, status=200 if ready else 503)

    async def metrics(_request: web.Request) -> web.Response:
        return _answer(view.metrics_text(), CONTENT_TYPE)

    async def status(_request: web.Request) -> web.Response:
        return _answer(status_json(view), "application/json")

    async def page(_request: web.Request) -> web.Response:
        return _answer(PAGE, "text/html; charset=utf-8")

    application = web.Application(middlewares=[_with_headers], client_max_size=1024)
    routes = {
        paths.LIVEZ: livez,
        paths.READYZ: readyz,
        paths.METRICS: metrics,
        paths.STATUS: status,
        "/": page,
    }
    for path, handler in routes.items():
        application.router.add_get(path, handler)  # HEAD comes with it
    return application


@web.middleware
async def _with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        answer = await handler(request)
    except web.HTTPException as refusal:  # 404, 405
        answer = _answer(f"{refusal.status} {refusal.reason}\n".encode(), PLAIN, status=refusal.status)
        if "Allow" in refusal.headers:
            answer.headers["Allow"] = refusal.headers["Allow"]
    answer.headers.update(_HEADERS)
    return answer


def _answer(body: bytes, content_type: str, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})
