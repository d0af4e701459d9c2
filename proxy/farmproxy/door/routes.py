"""What a head asks for: pure, from head to intent, or Refused. Nothing here touches a socket, a lease or a pod."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

from farmwire import bounds
from farmwire.reasons import Refusal

from farmproxy.door.lease_options import KEY_SHOWN, LAUNCH_KEYS, from_headers, read_query, without_token
from farmproxy.door.refusals import Refused
from farmproxy.door.request_heads import Head
from farmproxy.registry.ids import is_id

BODY_LIMIT = bounds.RENDER_BODY_BYTES
API_BODY_LIMIT = 16 * 1024  # POST /leases and renew, bytes


class Does(Enum):
    VERSION = "version"
    LIST = "list"
    SOCKET = "socket"  # a lease for one WebSocket
    RENDER = "render"  # a lease for one job
    NAME = "name"  # POST /leases
    SHOW_ALL = "show-all"
    SHOW = "show"
    END = "end"
    RENEW = "renew"
    JOIN = "join"
    PREFLIGHT = "preflight"  # a browser asks whether a page of an allowed Origin may ask

    __hash__ = object.__hash__  # Enum's own is a Python call each time a member is looked up in a set


LEASING = frozenset({Does.SOCKET, Does.RENDER, Does.NAME})
_LAUNCHING = frozenset(
    {Does.SOCKET, Does.NAME, Does.VERSION, Does.LIST}
)  # the last two: what would be asked for
_NOT_FOR_JOBS = {
    "proxy_server": "which targets it may reach is judged where the pod itself connects",
    "user_agent": "the job's own user_agent says it",
    "window": "the job's own viewport says it",
    "args": "a job says what it needs in its own fields",
}
_WITH_BODY = {Does.RENDER: BODY_LIMIT, Does.NAME: API_BODY_LIMIT, Does.RENEW: API_BODY_LIMIT}


@dataclass(slots=True)
class Intent:
    """``given``: the caller's own keys, not judged yet. ``target``: what the pod will see (leases and joins).
    ``id`` and ``key`` name a lease; a key stands for the token. ``token`` is what was presented.
    """

    does: Does
    given: dict[str, str]
    target: bytes = b""
    id: str = ""
    key: str = ""
    token: str = ""


def route(head: Head) -> Intent:
    """Refused: 404 for what does not exist, 400 for what is not asked rightly, 413 and 505 for what cannot be."""
    if _is_preflight(head):
        intent = Intent(Does.PREFLIGHT, {})
        _check_frame(head, intent)
        return intent
    intent = _by_path(head)
    given = from_headers(head)
    if intent.does is Does.JOIN:
        _keep_query(head, intent)
    elif head.query:
        given |= read_query(head.query)
    intent.token = given.pop("token", "") or _bearer(head)
    intent.given = given
    check_launch(intent.does, given)
    _check_frame(head, intent)
    return intent


def check_launch(does: Does, given: Mapping[str, str]) -> None:
    """Refuse what Chrome would be started with where no Chrome is started, or where a job says it otherwise."""
    if does in _LAUNCHING or LAUNCH_KEYS.isdisjoint(given):
        return
    for key in sorted(LAUNCH_KEYS.intersection(given)):
        if does is not Does.RENDER:
            raise Refused(Refusal.BAD_REQUEST, f"{key} says nothing here: name it when you take the lease")
        if key in _NOT_FOR_JOBS:
            raise Refused(Refusal.BAD_REQUEST, f"{key} is not taken with /render: {_NOT_FOR_JOBS[key]}")


def _keep_query(head: Head, intent: Intent) -> None:
    """Inside a lease the query is the pod's own, but Chrome's sockets read none: what stands there would mean nothing."""
    rest = without_token(head.query)
    if rest and is_upgrade(head):
        key = unquote(rest.partition(b"&")[0].partition(b"=")[0].decode("latin-1"))[:KEY_SHOWN]
        raise Refused(
            Refusal.BAD_REQUEST, f"{key!r} says nothing to a lease that runs: name it when you take the lease"
        )
    intent.target = joined(intent.target, rest)


def _by_path(head: Head) -> Intent:
    path = head.path
    if path.startswith(b"/leases"):
        return _in_leases(head)
    upgrade = is_upgrade(head)
    if upgrade and (path in {b"/", b"/devtools/browser"} or path.startswith(b"/devtools/browser/")):
        return Intent(Does.SOCKET, {}, path)
    if head.method in {b"GET", b"HEAD"} and not upgrade:
        trimmed = path[:-1] if path.endswith(b"/") else path
        if trimmed == b"/json/version":
            return Intent(Does.VERSION, {})
        if trimmed in {b"/json", b"/json/list"}:
            return Intent(Does.LIST, {})
        if path.startswith(b"/devtools/browser"):
            raise Refused(Refusal.BAD_REQUEST, "this path wants a WebSocket upgrade")
    if head.method == b"POST" and path == b"/render" and not upgrade:
        return Intent(Does.RENDER, {}, path)
    raise _unknown(head)


def _in_leases(head: Head) -> Intent:
    """/leases, /leases/ID[/renew], and /leases/ID.KEY followed by what the lease's own pod is asked."""
    parts = head.path.split(b"/", 3)  # "", "leases", name, tail
    name = parts[2].decode("latin-1") if len(parts) > 2 else ""
    tail = parts[3] if len(parts) > 3 else None
    if parts[1] != b"leases" or (tail is not None and not name):
        raise _unknown(head)
    if not name:
        does = {b"GET": Does.SHOW_ALL, b"POST": Does.NAME}.get(head.method)
    else:
        does = _on_one(head.method, tail)
    id_, dot, key = name.partition(".")
    if does is None and dot and tail is not None:
        does = Does.JOIN
    if does is None or (does is not Does.JOIN and is_upgrade(head)):
        raise _unknown(head)
    if name and not is_id(id_):
        raise Refused(Refusal.NOT_FOUND, "no such lease")
    target = b"/" + tail if does is Does.JOIN and tail is not None else b""
    return Intent(does, {}, target, id_, key)


def _on_one(method: bytes, tail: bytes | None) -> Does | None:
    if tail is None:
        return {b"GET": Does.SHOW, b"DELETE": Does.END}.get(method)
    return Does.RENEW if tail == b"renew" and method == b"POST" else None


def _check_frame(head: Head, intent: Intent) -> None:
    does = intent.does
    has_body = head.chunked or head.content_length > 0
    if head.old and (does in LEASING or does is Does.JOIN):
        raise Refused(Refusal.HTTP_VERSION, "a lease needs HTTP/1.1")
    if does is Does.JOIN and not is_upgrade(head):
        return  # what the lease's own pod takes is its own affair
    limit = _WITH_BODY.get(does)
    if has_body and limit is None:
        raise Refused(Refusal.BAD_REQUEST, "this request carries no body")
    if limit is not None and head.content_length > limit:
        raise Refused(Refusal.BODY_TOO_LARGE, f"the body is longer than {limit} bytes")
    if head.chunked and does is not Does.RENDER:
        raise Refused(Refusal.BAD_REQUEST, "this body must carry its content-length")


def _is_preflight(head: Head) -> bool:
    """Whatever it asks for: what does not exist is a 404 that the page can read."""
    return (
        head.method == b"OPTIONS"
        and head.value(b"origin") is not None
        and head.value(b"access-control-request-method") is not None
    )


def is_upgrade(head: Head) -> bool:
    """A WebSocket upgrade (RFC 6455, 4.2.1), however its list headers are written."""
    return (
        head.method == b"GET"
        and head.has_token(b"upgrade", b"websocket")
        and head.has_token(b"connection", b"upgrade")
    )


def joined(path: bytes, query: bytes) -> bytes:
    return path + b"?" + query if query else path


def _bearer(head: Head) -> str:
    value = head.value(b"authorization")
    if value is None or value[:7].lower() != b"bearer ":
        return ""
    return value[7:].strip().decode("utf-8", "replace")


def _unknown(head: Head) -> Refused:
    # The path may hold a key: only its first part is repeated.
    shown = unquote("/".join(head.path.decode("latin-1").split("/")[:2]))[:64]
    return Refused(Refusal.NOT_FOUND, f"{head.method.decode()} {shown} is not served here")
