"""The status page: one self-contained document that draws /status. What callers chose (labels) reaches the DOM as
text only, and the policy lets nothing run but the script that stands here.
"""

import base64
import hashlib
from importlib.resources import files


def _asset(name: str) -> str:
    return (files("farmproxy.admin") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_STYLE, _SCRIPT = _asset("page.css"), _asset("page.js")

PAGE = _asset("page.html").replace("/*style*/", _STYLE).replace("/*script*/", _SCRIPT).encode()
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_hash(_STYLE)}",
        f"script-src {_hash(_SCRIPT)}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
