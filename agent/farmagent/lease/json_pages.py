"""Chrome's /json pages as a caller of a lease may see them: every URL leads through the door, none to the pod."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from farmagent.chrome import chrome_http
from farmagent.chrome.chrome_http import ChromeAnswer
from farmagent.http.heads import Request, as_json

METHODS = ("GET", "HEAD", "PUT", "POST")  # PUT is what Chrome wants for /json/new
JSON_LIMIT_S = 10.0
SOCKET_URL = "webSocketDebuggerUrl"
FRONTEND_URL = "devtoolsFrontendUrl"


def is_json_page(path: str) -> bool:
    return path == "/json" or path.startswith("/json/")


async def page(port: int, request: Request, public_base: str) -> ChromeAnswer:
    """``public_base``: ws://door/leases/ID.KEY, without a slash at the end. Raises ChromeLostError."""
    method = "GET" if request.method == "HEAD" else request.method
    query = request.target.partition("?")[2]
    target = request.path + (f"?{query}" if query else "")
    answer = await chrome_http.ask(port, method, target, limit_s=JSON_LIMIT_S)
    try:
        value = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return answer  # /json/close and /json/activate answer a sentence
    if request.path.rstrip("/") == "/json/protocol":
        return answer
    body = as_json(rewritten(value, f"{chrome_http.HOST}:{port}", public_base))
    return ChromeAnswer(answer.status, "application/json; charset=UTF-8", body)


def rewritten(value: Any, chrome_host: str, public_base: str) -> Any:
    """The same JSON with Chrome's address replaced in the fields that carry URLs."""
    if isinstance(value, list):
        return [rewritten(item, chrome_host, public_base) for item in value]
    if not isinstance(value, dict):
        return value
    changed = dict(value)
    if isinstance(changed.get(SOCKET_URL), str):
        changed[SOCKET_URL] = public_base + urlsplit(changed[SOCKET_URL]).path
    if isinstance(changed.get(FRONTEND_URL), str):
        scheme, _, rest = public_base.partition("://")
        for old in (f"ws={chrome_host}", f"wss={chrome_host}"):
            changed[FRONTEND_URL] = changed[FRONTEND_URL].replace(old, f"{scheme}={rest}")
    return changed
