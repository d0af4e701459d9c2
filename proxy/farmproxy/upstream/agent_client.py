"""Requests to agents on kept-alive connections: is the pod free, how did its lease end, which Chrome is it.

One request at a time a connection. A kept connection that its agent closed meanwhile is no answer: the request is
sent once more on a new one. Idle connections are given up where descriptors run short.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from farmproxy.net.poller import READ, WRITE, Poller
from farmproxy.net.sockets import authority, outgoing
from farmproxy.net.timeouts import Timeouts
from farmproxy.upstream.response_heads import AnswerHead, Garbage, read_same_head

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Response:
    """An agent's answer; ``status`` 0: none came. ``reached``: its machine took the connection."""

    status: int
    body: bytes = b""
    reached: bool = True


NOT_REACHED = Response(0, reached=False)
SILENT = Response(0)
OnResponse = Callable[[Response], None]


class PendingRequest:
    """One request under way; ``cancel`` drops it with its connection."""

    __slots__ = ("_answer_timer", "_client", "_link", "address", "on_response", "over", "text", "tried")

    def __init__(
        self, client: "AgentClient", address: Address, text: bytes, wait_s: float, on_response: OnResponse
    ) -> None:
        self._client = client
        self._answer_timer = client.timer_for(wait_s)
        self._link: _Link | None = None
        self.address = address
        self.text = text
        self.on_response = on_response
        self.over = False
        self.tried = 0

    def begin(self) -> None:
        self._answer_timer.start(self)
        self.try_again()

    def try_again(self) -> None:
        """Put it on an idle connection, or on a new one after a kept one had turned out to be closed."""
        self.tried += 1
        self._link = self._client.take_link(self.address, fresh=self.tried > 1)
        if self._link is None:
            self._client.later(self, SILENT)
        else:
            self._link.ask(self)

    def finish(self, response: Response) -> None:
        if not self.over:
            self._end()
            self.on_response(response)

    def time_is_up(self) -> None:
        if not self.over:
            self.cancel()
            self.on_response(SILENT)

    def cancel(self) -> None:
        self._end()
        if self._link is not None:
            self._link.close()

    def _end(self) -> None:
        self.over = True
        self._answer_timer.stop(self)


class AgentClient:
    """All connections to agents that are not leases."""

    def __init__(
        self,
        poller: Poller,
        clock: Callable[[], float],
        *,
        connect_s: float,
        answer_s: float,
    ) -> None:
        """``answer_s``: how long after its wait an agent may take to answer. ``keeps``: descriptors are plenty."""
        self.poller = poller
        self.connect: Timeouts[_Link] = Timeouts(connect_s, clock)
        self._clock = clock
        self._answer_s = answer_s
        self.keeps = True
        self._timers: dict[int, Timeouts[PendingRequest]] = {}
        self._idle: dict[Address, _Link] = {}
        self._unaskable: list[tuple[PendingRequest, Response]] = []

    def ask(self, address: Address, target: str, wait_s: float, on_response: OnResponse) -> PendingRequest:
        """GET ``target``; ``on_response`` is called once, later, unless the request is cancelled."""
        host = authority(*address)
        text = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1")
        request = PendingRequest(self, address, text, wait_s, on_response)
        request.begin()
        return request

    def sweep(self) -> None:
        for link in self.connect.expired():
            link.fail(NOT_REACHED)
        for timer in self._timers.values():
            for request in timer.expired():
                request.time_is_up()
        unaskable, self._unaskable = self._unaskable, []
        for request, response in unaskable:
            request.finish(response)

    def later(self, request: PendingRequest, response: Response) -> None:
        """Answer at the next sweep: ``on_response`` is never called from ``ask`` itself."""
        self._unaskable.append((request, response))

    def timer_for(self, wait_s: float) -> "Timeouts[PendingRequest]":
        """The timer of requests that wait about so long (whole seconds, so that there are few timers)."""
        whole = int(wait_s) + 1
        timer = self._timers.get(whole)
        if timer is None:
            timer = self._timers[whole] = Timeouts(whole + self._answer_s, self._clock)
        return timer

    def take_link(self, address: Address, *, fresh: bool) -> "_Link | None":
        link = self._idle.pop(address, None)
        if link is not None and not fresh:
            return link
        if link is not None:
            link.close()
        if not self.keeps:
            self.give_up_idle(16)
        try:
            return _Link(self, address)
        except OSError:
            return None

    def keep(self, link: "_Link") -> None:
        """The link is idle; one a pod is kept while descriptors are plenty."""
        if link.address in self._idle or not self.keeps:
            link.close()
        else:
            self._idle[link.address] = link

    def forget(self, link: "_Link") -> None:
        if self._idle.get(link.address) is link:
            del self._idle[link.address]

    def give_up_idle(self, number: int) -> None:
        """Close the oldest idle connections."""
        for link in list(self._idle.values())[:number]:
            link.close()

    def close(self) -> None:
        self.give_up_idle(len(self._idle))


class _Link:
    """One connection to an agent."""

    __slots__ = ("_buffer", "_client", "_connected", "_request", "_used", "address", "sock")

    def __init__(self, client: AgentClient, address: Address) -> None:
        self._client = client
        self._buffer = bytearray()
        self._request: PendingRequest | None = None
        self._connected = False
        self._used = False  # carried an answer before: it may have been closed since
        self.address = address
        self.sock = outgoing(address[0])
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect_ex(address)  # an error is reported by the poller as well
        client.poller.watch(self.sock, WRITE, self._on_connected)
        client.connect.start(self)

    def ask(self, request: PendingRequest) -> None:
        self._request = request
        if self._connected:
            self._send(request)

    def close(self) -> None:
        self._request = None
        self._client.connect.stop(self)
        self._client.forget(self)
        self._client.poller.close(self.sock)

    def fail(self, response: Response) -> None:
        request, used = self._request, self._used
        self.close()
        if request is None:
            return
        if used and not self._buffer and request.tried == 1:
            request.try_again()
        else:
            request.finish(response)

    def _send(self, request: PendingRequest) -> None:
        try:
            self.sock.send(request.text)
        except OSError:
            self.fail(NOT_REACHED if not self._used else SILENT)

    def _on_connected(self, _mask: int) -> None:
        if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.fail(NOT_REACHED)
            return
        self._connected = True
        self._client.connect.stop(self)
        self._client.poller.change(self.sock, READ)
        self._client.poller.hand_over(self.sock, self._on_answer)
        if self._request is not None:
            self._send(self._request)

    def _on_answer(self, _mask: int) -> None:
        try:
            data = self.sock.recv(16384)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or self._request is None:
            self.fail(SILENT)  # closed, or speaking without being asked
            return
        self._buffer += data
        try:
            head = read_same_head(self._buffer)
            if head is None:
                return
            self._answered(head)
        except Garbage:
            self.fail(SILENT)

    def _answered(self, head: AnswerHead) -> None:
        if head.body is None or head.status < 200:
            raise Garbage("an answer without a length")
        whole = head.size + head.body
        if len(self._buffer) < whole:
            return
        request, body = self._request, bytes(self._buffer[head.size : whole])
        clean = len(self._buffer) == whole and b"close" not in head.fields.get(b"connection", b"").lower()
        self._buffer.clear()
        self._request = None
        self._used = True
        if clean:
            self._client.keep(self)
        else:
            self.close()
        assert request is not None
        request.finish(Response(head.status, body))
