"""A real Chromium a module, and a server of pages that are good, slow, broken or hostile, on loopback."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from farmagent.render import RenderAnswer, TargetPolicy, render
from farmwire.addresses import Address
from PIL import Image

CHROMIUM = "/usr/lib/chromium/chromium"
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--no-startup-window",
    "--password-store=basic",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-component-extensions-with-background-pages",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,PreloadTopChromeWebUI,MediaRouter,Translate",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.*, EXCLUDE localhost",
    "--remote-debugging-port=0",
]
SERVED = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
GUARDED = TargetPolicy.parse(
    "127.0.0.1/32,127.0.0.2/32"
)  # so 127.0.0.3 is the private network of these tests


def encoded(picture: Image.Image) -> bytes:
    into = io.BytesIO()
    picture.save(into, "jpeg")
    return into.getvalue()


INVOICE = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj "
    b"4 0 obj<</Length 41>>stream\nBT /F 12 Tf 9 50 Td (INVOICE 4711) Tj ET\nendstream endobj "
    b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj trailer<</Root 1 0 R>>\n%%EOF\n"
)
NOISE = encoded(Image.effect_noise((64, 50), 90).resize((1280, 1000)))
NAMES = {"a.test": "127.0.0.1", "b.test": "127.0.0.2", "private.test": "127.0.0.3"}


@contextmanager
def chromium(home: Path, *more: str) -> Iterator[str]:
    """The browser socket's URL of a Chromium of one's own."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}")
    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, *more, f"--user-data-dir={home}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "HOME": str(home)},
    )
    assert process.stderr is not None
    url = ""
    for line in process.stderr:
        if found := re.search(rb"DevTools listening on (ws://\S+)", line):
            url = found.group(1).decode()
            break
    drain = threading.Thread(target=process.stderr.read)
    drain.start()
    yield url
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    drain.join(10)
    process.stderr.close()


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chromium(tmp_path_factory.mktemp("chrome")) as url:
        yield url


@pytest.fixture(scope="module")
def chrome_with_textures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that draws through GL, in software, as one with a GPU does: no texture is over 8,192 px."""
    flags = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")
    with chromium(tmp_path_factory.mktemp("textures"), *flags) as url:
        yield url


async def named(name: str, _port: int) -> list[Address]:
    if name not in NAMES:
        raise OSError(f"no such name {name}")
    return [ip_address(NAMES[name])]


@dataclass
class Pages:
    """The page server: ``url`` makes addresses, ``seen`` holds host+path of every request that arrived."""

    port: int = 0
    seen: list[str] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    sockets: int = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def paths(self, host: str) -> list[str]:
        return [path for seen_host, path in (one.split("/", 1) for one in self.seen) if seen_host == host]


def html(body: str, **more: Any) -> web.Response:
    return web.Response(text=f"<!DOCTYPE html><title>T</title>{body}", content_type="text/html", **more)


def _routes(pages: Pages) -> list[web.RouteDef]:
    async def page(_: web.Request) -> web.Response:
        return html("<h1 id=h>Hello</h1><p>text é</p>")

    async def raw(request: web.Request) -> web.Response:
        """Serves the query's ``html``, so that a test shows its page where it is used."""
        answer = html(request.query["html"])
        if "close" in request.query:
            answer.force_close()
        return answer

    async def raw_bytes(request: web.Request) -> web.Response:
        """Serves the query's ``hex``, without a charset."""
        answer = web.Response(body=bytes.fromhex(request.query["hex"]))
        answer.headers["Content-Type"] = request.query.get("type", "text/html")
        if "csp" in request.query:
            answer.headers["Content-Security-Policy"] = request.query["csp"]
        return answer

    async def parts(request: web.Request) -> web.StreamResponse:
        """A document that comes in two parts a second apart."""
        answer = web.StreamResponse(headers={"Content-Type": "text/html"})
        await answer.prepare(request)
        style = "style='margin:0;height:150px'"
        await answer.write(f"<!DOCTYPE html><body style='margin:0'><p {style}>one</p>".encode())
        await asyncio.sleep(1)
        await answer.write(f"<p id=two {style}>two</p>".encode())
        return answer

    async def odd_header(request: web.Request) -> web.StreamResponse:
        """An answer whose header holds bytes that are no text, written past aiohttp, which would refuse them."""
        picture = request.path == "/odd-picture"
        body = b"<svg xmlns='http://www.w3.org/2000/svg'/>" if picture else b"<p>odd<img src=/odd-picture>"
        kind = b"image/svg+xml" if picture else b"text/html"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nX-Odd: \xff\xed\xa0\xbd\xe9\r\nContent-Length: %d\r\n"
        assert request.transport is not None
        request.transport.write(head % (kind, len(body)) + b"Connection: close\r\n\r\n" + body)
        request.transport.close()
        return web.Response()

    async def echo(request: web.Request) -> web.Response:
        return html(f"<pre id=e>{json.dumps(dict(request.headers))}</pre>")

    async def login(_: web.Request) -> web.Response:
        answer = html("in")
        for cookie in (
            "session=1; HttpOnly",
            "part=2; Path=/; Secure; SameSite=None; Partitioned",
            "stays=3; Path=/; Max-Age=1000; SameSite=Lax",
        ):
            answer.headers.add("Set-Cookie", cookie)
        return answer

    async def lazy(_: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        svg = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><rect width='9' height='9' fill='#0f0'/></svg>"
        return web.Response(text=svg, content_type="image/svg+xml")

    async def noise(_: web.Request) -> web.Response:
        return web.Response(body=NOISE, content_type="image/jpeg")

    async def invoice(request: web.Request) -> web.Response:
        more = {"Content-Disposition": "attachment; filename=a.pdf"} if "attached" in request.query else {}
        return web.Response(
            body=INVOICE, content_type=request.query.get("type", "application/pdf"), headers=more
        )

    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query["to"]})

    async def loop(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/loop"})

    async def status(request: web.Request) -> web.Response:
        body = "" if "empty" in request.query else "<h1>status page</h1>"
        return web.Response(status=int(request.match_info["code"]), text=body, content_type="text/html")

    async def hang(_: web.Request) -> web.Response:
        pages.arrived.set()
        await pages.ended.wait()
        return html("late")

    async def late(request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.query["s"]))
        return html("<h1>late</h1>")

    async def download(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1000, headers={"Content-Disposition": "attachment; filename=f.bin"})

    async def basic(_: web.Request) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": "Basic realm=x"}, text="who?")

    async def reset(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def socket(request: web.Request) -> web.WebSocketResponse:
        pages.sockets += 1
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        await answer.send_str("hello")
        await pages.ended.wait()
        return answer

    async def image(_: web.Request) -> web.Response:
        svg = "<svg xmlns='http://www.w3.org/2000/svg' width='4' height='4'/>"
        return web.Response(
            text=svg, content_type="image/svg+xml", headers={"Access-Control-Allow-Origin": "*"}
        )

    return [
        web.get("/page", page),
        web.get("/raw", raw),
        web.get("/bytes", raw_bytes),
        web.get("/parts", parts),
        web.post("/parts", parts),
        web.get("/odd-header", odd_header),
        web.get("/odd-picture", odd_header),
        web.get("/echo", echo),
        web.get("/login", login),
        web.get("/lazy/{number}", lazy),
        web.get("/noise", noise),
        web.get("/invoice", invoice),
        web.get("/invoice.pdf", invoice),
        web.get("/redirect", redirect),
        web.get("/loop", loop),
        web.get("/status/{code}", status),
        web.get("/hang", hang),
        web.get("/late", late),
        web.get("/download", download),
        web.get("/basic", basic),
        web.get("/reset", reset),
        web.get("/ws", socket),
        web.get("/image", image),
        web.get("/favicon.ico", image),
    ]


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    state = Pages()

    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        local = request.transport.get_extra_info("sockname")[0] if request.transport else ""
        state.seen.append(f"{local}{request.path}")
        state.requests.append(request)
        return await handler(request)

    app = web.Application(middlewares=[note])
    app.add_routes(_routes(state))
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    for host in SERVED:
        await web.TCPSite(runner, host, state.port).start()
        state.port = runner.addresses[0][1]
    yield state
    state.ended.set()
    await runner.cleanup()


Rendering = Callable[..., Awaitable[RenderAnswer]]


@pytest.fixture
def rendering(chrome: str) -> Rendering:
    """``await rendering(url, policy=..., **options)``; guarded unless told otherwise."""

    async def run(url: str, *, policy: TargetPolicy = GUARDED, **options: Any) -> RenderAnswer:
        body = json.dumps({"url": url, "timeout_s": 20, **options}).encode()
        return await render(chrome, body, policy=policy, resolver=named)

    return run
