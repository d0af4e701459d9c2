"""What is taken from a settled page: its text, a picture, a PDF or a JSON summary, none over the answer's limit."""

from collections.abc import Mapping
from typing import Any

import msgspec

from farmagent.render import documents
from farmagent.render.answers import ANSWER_MAX_BYTES, too_large
from farmagent.render.pages import Page
from farmagent.render.pictures import load_lazy, picture
from farmagent.render.requests import RenderRequest

# A form's controls hide its own properties by their names, in every world: those are asked of the prototype.
_OF = "((type, name, node) => Object.getOwnPropertyDescriptor(type.prototype, name).get.call(node))"
# The answer is UTF-8, so it must not call itself anything else: a saved copy would be read as that. What the page
# declares is changed while its text is made, and put back in the same step.
_HTML = """(() => {
  const undo = [];
  for (const meta of document.querySelectorAll("meta[charset], meta[http-equiv=content-type i][content]")) {
    for (const name of meta.matches("[http-equiv=content-type i]") ? ["charset", "content"] : ["charset"]) {
      const old = meta.getAttribute(name);
      const utf8 = name === "charset" ? "utf-8" : old?.replace(/charset\\s*=.*/is, "charset=utf-8");
      if (old === null || old.toLowerCase() === utf8.toLowerCase()) continue;
      undo.push(() => meta.setAttribute(name, old));
      meta.setAttribute(name, utf8);
    }
  }
  const root = document.documentElement;
  const type = document.doctype ? new XMLSerializer().serializeToString(document.doctype) + "\\n" : "";
  const text = type + (root ? OF(Element, "outerHTML", root) : "");
  undo.forEach((step) => step());
  return text;
})()""".replace("OF", _OF)
_TEXT = """(document.body ? OF(HTMLElement, "innerText", document.body)
  : document.documentElement ? OF(Node, "textContent", document.documentElement) ?? "" : "")""".replace(
    "OF", _OF
)
# The length is looked at in the page, so that a huge string never travels. A string is at most 3 bytes a char.
_BOUNDED = """(() => {
  const parts = [%s];
  const chars = parts.reduce((sum, part) => sum + part.length, 0);
  return chars > %d ? chars : parts;
})()"""


async def capture(page: Page, request: RenderRequest, result: Any, timings: Mapping[str, float]) -> bytes:
    """The answer's body in the asked-for format. RenderError 413 if it is over ANSWER_MAX_BYTES."""
    match request.format:
        case "html" | "text":
            body = (await _strings(page, _HTML if request.format == "html" else _TEXT))[0].encode(
                errors="replace"
            )
        case "json":
            body = await _summary(page, result, timings)
        case "pdf":
            body = await _pdf(page, request)
        case _:
            body = await picture(page, request)
    if len(body) > ANSWER_MAX_BYTES:
        raise too_large(f"the {request.format}", len(body), ANSWER_MAX_BYTES, "bytes")
    return body


async def _strings(page: Page, *expressions: str) -> list[str]:
    page.step = "reading the page"
    found = await page.ask(_BOUNDED % (", ".join(expressions), ANSWER_MAX_BYTES))
    if not isinstance(found, list):
        raise too_large("the page's text", int(found), ANSWER_MAX_BYTES, "characters")
    return [str(text) for text in found]


async def _summary(page: Page, result: Any, timings: Mapping[str, float]) -> bytes:
    url, title, html, text = await _strings(page, "location.href", "document.title", _HTML, _TEXT)
    summary = {
        "url": url,
        "status": page.progress.status,
        "title": title,
        "html": html,
        "text": text,
        "result": result,
        "timings": timings,
    }
    return msgspec.json.encode(summary)


async def _pdf(page: Page, request: RenderRequest) -> bytes:
    await load_lazy(page, request, everywhere=True)
    page.step = "printing the page"
    params = {"printBackground": True, "preferCSSPageSize": True, "transferMode": "ReturnAsStream"}
    stream = (await page.send("Page.printToPDF", params))["stream"]
    return await documents.read(page.send, stream, "the pdf")
