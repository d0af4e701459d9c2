"""A URL that is no page but a PDF: the document itself for format pdf.

The rule: Chrome's viewer is never what is answered. For format pdf each answer to the main frame is looked at
before Chrome makes a page of it (one pause a document); a PDF is taken there, byte for byte. For other formats the
answer's type says enough, and the job ends with it.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from farmagent.render.answers import ANSWER_MAX_BYTES, too_large

PDF = "application/pdf"
CHUNK_BYTES = 4 * 1024 * 1024
Send = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
LOOK_AT_ANSWERS = {"patterns": [{"resourceType": "Document", "requestStage": "Response"}]}


class Document(msgspec.Struct, frozen=True):
    """What the main frame was answered, whole."""

    url: str
    status: int
    body: bytes


def is_pdf(paused: Mapping[str, Any]) -> bool:
    """Whether a paused answer (Fetch.requestPaused) says that it is a PDF: by its type, or its name where that is mute."""
    headers = {one["name"].lower(): one["value"].lower() for one in paused.get("responseHeaders", ())}
    mime = headers.get("content-type", "").partition(";")[0].strip()
    named = urlsplit(paused["request"]["url"]).path.lower().endswith(".pdf")
    named = named or ".pdf" in headers.get("content-disposition", "")
    ok = 200 <= paused.get("responseStatusCode", 0) < 300
    return ok and (mime in (PDF, "application/x-pdf") or (named and mime == "application/octet-stream"))


async def take(send: Send, paused: Mapping[str, Any]) -> Document:
    """The paused answer with its body; Chrome gets none of it. RenderError 413 if that is over ANSWER_MAX_BYTES."""
    request = {"requestId": paused["requestId"]}
    stream = (await send("Fetch.takeResponseBodyAsStream", request))["stream"]
    body = await read(send, stream, "the document")
    return Document(str(paused["request"]["url"]), int(paused["responseStatusCode"]), body)


async def read(send: Send, stream: str, what: str) -> bytes:
    """All of a stream of Chrome's. RenderError 413 if that is over ANSWER_MAX_BYTES."""
    body = bytearray()
    while True:
        chunk = await send("IO.read", {"handle": stream, "size": CHUNK_BYTES})
        data = chunk["data"]
        body += base64.b64decode(data) if chunk.get("base64Encoded") else data.encode()
        if len(body) > ANSWER_MAX_BYTES:
            raise too_large(what, len(body), ANSWER_MAX_BYTES, "bytes or more")
        if chunk["eof"]:
            return bytes(body)
