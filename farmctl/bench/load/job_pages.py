"""The page of the job benchmark, served from loopback: markup, styles, scripts and pictures of ordinary sizes."""

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PICTURES = 24
ROWS = 400

_PAGE = """<!doctype html><title>job</title><link rel=stylesheet href=/style.css>
<h1>A page with some work in it</h1><div id=pictures></div><table id=rows></table><p id=sum></p>
<script src=/script.js></script>"""
_STYLE = "body{font:14px sans-serif} td{border:1px solid #ccc;padding:2px} img{width:64px;height:64px}\n" * 40
_SCRIPT = f"""
const rows = document.getElementById('rows');
for (let i = 0; i < {ROWS}; i++) {{
  const tr = rows.insertRow();
  for (let j = 0; j < 8; j++) tr.insertCell().textContent = (i * 31 + j * 17) % 997;
}}
const pictures = document.getElementById('pictures');
for (let i = 0; i < {PICTURES}; i++) {{
  const img = new Image(); img.src = '/picture/' + i + '.svg'; pictures.append(img);
}}
"""


def picture(number: int) -> bytes:
    """An SVG of about 4 KiB, another for each number."""
    shapes = "".join(
        f'<circle cx="{zlib.crc32(bytes((number, i))) % 64}" cy="{i % 64}" r="2" fill="#{i * 37 % 4096:03x}"/>'
        for i in range(90)
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">{shapes}</svg>'.encode()


class _Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, body = self._content()
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _content(self) -> tuple[str, bytes]:
        if self.path == "/":
            return "text/html", _PAGE.encode()
        if self.path == "/style.css":
            return "text/css", _STYLE.encode()
        if self.path == "/script.js":
            return "text/javascript", _SCRIPT.encode()
        if self.path.startswith("/picture/"):
            return "image/svg+xml", picture(int(self.path.rpartition("/")[2].partition(".")[0]))
        return "text/plain", b""

    def log_message(self, *_: object) -> None:
        """Say nothing: the benchmark's terminal is its own."""


@contextmanager
def served() -> Iterator[str]:
    """Serve the page until the block ends; gives its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
