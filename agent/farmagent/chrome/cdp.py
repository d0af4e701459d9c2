"""A small typed client of the Chrome DevTools Protocol: one WebSocket, flattened sessions, commands and events.

The rule: every command ends. It returns Chrome's result, or raises CdpError (Chrome said no), CdpTimeout (no
answer in time) or CdpLost (the connection is gone, so is everything that waited on it). A cancelled command
leaves nothing behind; its late answer is dropped. An event that cannot be read or that a listener stumbles over
costs that event only, since pages put their own bytes into events.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from farmagent.logs import log

# A screenshot or PDF of 64 MiB is 86 MiB of base64; twice the answer's limit leaves room for JSON's escapes.
MESSAGE_MAX_BYTES = 128 * 1024 * 1024
COMMAND_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 1.0
TOO_BIG = 1009  # RFC 6455 7.4.1: the close code of a message over the limit


class CdpError(Exception):
    """Chrome refused a command. ``code`` is JSON-RPC's (or Chrome's own negative number)."""

    def __init__(self, code: int, message: str, *, method: str = "") -> None:
        super().__init__(f"{method}: {message}" if method else message)
        self.code = code
        self.message = message
        self.method = method


class CdpTimeout(CdpError, TimeoutError):
    """Chrome did not answer a command in time; the connection may still be there."""

    def __init__(self, method: str, timeout_s: float) -> None:
        super().__init__(0, f"no answer within {timeout_s:g} s", method=method)


class CdpTargetLost(CdpError):
    """The command's target crashed, closed or was detached before it answered (Chrome itself never says so)."""

    def __init__(self, method: str) -> None:
        super().__init__(0, "the target is gone", method=method)


class CdpLost(Exception):
    """The connection to Chrome ended, or never began. ``too_big``: a message was over MESSAGE_MAX_BYTES."""

    def __init__(self, detail: str, *, too_big: bool = False) -> None:
        super().__init__(detail)
        self.too_big = too_big


class Event(msgspec.Struct, frozen=True):
    """One event. ``session_id`` is empty for the browser's own; ``raw`` is decoded only when asked for."""

    method: str
    session_id: str
    raw: msgspec.Raw

    @property
    def params(self) -> dict[str, Any]:
        return msgspec.json.decode(self.raw, type=dict[str, Any]) if bytes(self.raw) else {}


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Message(msgspec.Struct):
    """Whatever Chrome sends: an answer has an id, an event a method."""

    id: int | None = None
    method: str = ""
    sessionId: str = ""  # noqa: N815  (the protocol's name)
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"{}")
    error: _Failure | None = None


_TARGET_LOST = _Message()
_DECODER = msgspec.json.Decoder(_Message)
_ENCODER = msgspec.json.Encoder()
Listener = Callable[[Event], None]


class Events:
    """A subscription: iterate it, or ``next`` with a limit. Unbounded, so a subscriber must read or leave."""

    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        self._waiting: deque[Event] = deque()
        self._wake = asyncio.Event()

    def push(self, event: Event | None) -> None:
        if event is not None:
            self._waiting.append(event)
        self._wake.set()

    async def next(self, *, timeout_s: float | None = None) -> Event:
        """The oldest unread event; TimeoutError after ``timeout_s``, CdpLost when none can come any more."""
        async with asyncio.timeout(timeout_s):
            while not self._waiting:
                self._browser.check()
                self._wake.clear()
                await self._wake.wait()
        return self._waiting.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self.next()


class Browser:
    """An open connection to Chrome's browser socket; made by ``connect``."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last_id = 0
        self._pending: dict[int, asyncio.Future[_Message]] = {}
        self._sessions: dict[int, str] = {}  # of the pending commands that have one
        self._listeners: dict[str | None, list[Listener]] = {}
        self._subscriptions: list[Events] = []
        self._lost: CdpLost | None = None
        self.ended = asyncio.Event()  # set once the connection is gone, whoever closed it
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="cdp-reader")

    @property
    def lost(self) -> CdpLost | None:
        """Why the connection is gone, or None while it stands."""
        return self._lost

    def check(self) -> None:
        """Raise CdpLost if the connection is gone."""
        if self._lost is not None:
            raise CdpLost(str(self._lost), too_big=self._lost.too_big) from self._lost

    async def send(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        timeout_s: float | None = COMMAND_TIMEOUT_S,
    ) -> dict[str, Any]:
        """Send one command and await its result. None as ``timeout_s`` waits as long as the connection lives."""
        identity, future = self._enter(session_id)
        try:
            async with asyncio.timeout(timeout_s):
                await self._write(identity, method, params, session_id)
                answer = await future
        except TimeoutError as error:
            raise CdpTimeout(method, timeout_s or 0.0) from error
        finally:
            self._pending.pop(identity, None)
            self._sessions.pop(identity, None)
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()  # read, so that a loss met by nobody is no warning
        if answer is _TARGET_LOST:
            raise CdpTargetLost(method)
        if answer.error is not None:
            raise CdpError(answer.error.code, answer.error.message, method=method)
        return msgspec.json.decode(answer.result, type=dict[str, Any])

    async def post(
        self, method: str, params: Mapping[str, Any] | None = None, *, session_id: str | None = None
    ) -> None:
        """Send a command whose answer does not matter (an error of it is dropped too)."""
        self.check()
        self._last_id += 1
        await self._write(self._last_id, method, params, session_id)

    async def attach(self, target_id: str, *, timeout_s: float | None = COMMAND_TIMEOUT_S) -> str:
        """Attach to a target; returns the flattened session's id."""
        answer = await self.send(
            "Target.attachToTarget", {"targetId": target_id, "flatten": True}, timeout_s=timeout_s
        )
        return str(answer["sessionId"])

    @contextmanager
    def listening(self, listener: Listener, *, session_id: str | None = None) -> Iterator[None]:
        """Call ``listener`` at once for each event of the session ("" the browser's own, None every session's).

        It runs inside the reader: it must be quick and must not raise.
        """
        listeners = self._listeners.setdefault(session_id, [])
        listeners.append(listener)
        try:
            yield
        finally:
            listeners.remove(listener)
            if not listeners:
                self._listeners.pop(session_id, None)

    @contextmanager
    def events(self, session_id: str | None = None) -> Iterator[Events]:
        """``with browser.events(session) as events: async for event in events``."""
        subscription = Events(self)
        self._subscriptions.append(subscription)
        try:
            with self.listening(subscription.push, session_id=session_id):
                yield subscription
        finally:
            self._subscriptions.remove(subscription)

    async def wait_for(
        self,
        method: str,
        *,
        session_id: str | None = None,
        where: Callable[[dict[str, Any]], bool] = lambda _: True,
        timeout_s: float | None = COMMAND_TIMEOUT_S,
    ) -> Event:
        """The next event of that name that ``where`` accepts; TimeoutError, or CdpLost."""
        with self.events(session_id) as events:
            async with asyncio.timeout(timeout_s):
                async for event in events:
                    if event.method == method and where(event.params):
                        return event
        raise AssertionError("a subscription only ends by raising")

    async def close(self) -> None:
        """Close the connection (idempotent). Chrome goes on."""
        self._end(CdpLost("the connection was closed by this side"))
        self._reader.cancel()
        await asyncio.wait({self._reader})
        with suppress(WebSocketException, OSError):
            await self._socket.close()

    def _enter(self, session_id: str | None) -> tuple[int, asyncio.Future[_Message]]:
        self.check()
        self._last_id += 1
        future: asyncio.Future[_Message] = asyncio.get_running_loop().create_future()
        self._pending[self._last_id] = future
        if session_id:
            self._sessions[self._last_id] = session_id
        return self._last_id, future

    async def _write(
        self, identity: int, method: str, params: Mapping[str, Any] | None, session_id: str | None
    ) -> None:
        message: dict[str, Any] = {"id": identity, "method": method, "params": params or {}}
        if session_id:
            message["sessionId"] = session_id
        try:
            await self._socket.send(_ENCODER.encode(message), text=True)
        except ConnectionClosed as error:
            self._end(_why_lost(error))
            self.check()

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._socket.recv(decode=False))
        except ConnectionClosed as error:
            self._end(_why_lost(error))
        except (ValueError, OSError) as error:
            self._end(CdpLost(f"Chrome's message cannot be read: {error}"))

    def _take(self, data: bytes) -> None:
        try:
            message = _DECODER.decode(data)
        except msgspec.DecodeError:
            message = _DECODER.decode(well_formed(data))
        if message.id is not None:
            future = self._pending.pop(message.id, None)
            if future is not None and not future.done():
                future.set_result(message)
            return
        try:
            self._tell(Event(message.method, message.sessionId, message.params))
        except (ValueError, LookupError, TypeError, AttributeError):
            log.exception("cdp-event", method=message.method[:100])

    def _tell(self, event: Event) -> None:
        if event.method == "Inspector.targetCrashed":
            self._lose(event.session_id)
        elif event.method == "Target.detachedFromTarget":
            self._lose(str(event.params.get("sessionId", "")))
        for key in (event.session_id, None):
            for listener in tuple(self._listeners.get(key, ())):
                listener(event)

    def _lose(self, session_id: str) -> None:
        """End the commands that wait on a target that is gone: Chrome would never answer them."""
        for identity in [one for one, session in self._sessions.items() if session == session_id]:
            future = self._pending.pop(identity, None)
            if future is not None and not future.done():
                future.set_result(_TARGET_LOST)

    def _end(self, lost: CdpLost) -> None:
        if self._lost is not None:
            return
        self._lost = lost
        self.ended.set()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(CdpLost(str(lost), too_big=lost.too_big))
        for subscription in self._subscriptions:
            subscription.push(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def well_formed(data: bytes) -> bytes:
    """JSON with every half of a surrogate pair replaced (U+FFFD). ValueError for what is no JSON.

    JavaScript's strings may hold such halves and Chrome passes them on; JSON in UTF-8 has no way to (RFC 8259 8.2).
    """
    text = json.dumps(json.loads(data.decode(errors="replace")), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _why_lost(error: ConnectionClosed) -> CdpLost:
    too_big = any(frame is not None and frame.code == TOO_BIG for frame in (error.sent, error.rcvd))
    return CdpLost(f"the connection to Chrome ended: {error}", too_big=too_big)


@asynccontextmanager
async def connect(
    ws_url: str, *, timeout_s: float = 10.0, max_bytes: int = MESSAGE_MAX_BYTES
) -> AsyncGenerator[Browser, None]:
    """Open Chrome's browser socket (or a page's). Raises CdpLost if that fails or takes over ``timeout_s``.

    Compression is off (the bytes stay on loopback) and so are pings: DevTools commands are the heartbeat.
    """
    try:
        async with asyncio.timeout(timeout_s):
            socket = await ws_connect(
                ws_url,
                compression=None,
                proxy=None,
                user_agent_header=None,
                ping_interval=None,
                open_timeout=None,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=max_bytes,
            )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise CdpLost(f"no connection to Chrome at {ws_url}: {error or type(error).__name__}") from error
    async with Browser(socket) as browser:
        yield browser
