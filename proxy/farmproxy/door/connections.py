"""A caller's TCP connection while it has no lease: heads in, the door's own answers out, kept alive between them.

A request that takes a lease owns the connection: a session for good, POST /leases until it is answered.
"""

from farmwire.reasons import Refusal

from farmproxy.door import request_heads, responses
from farmproxy.door.context import NO_MEMORY, Door
from farmproxy.door.joins import Join
from farmproxy.door.lease_options import judge
from farmproxy.door.leases_api import LeasesApi
from farmproxy.door.refusals import Refused
from farmproxy.door.request_heads import Head
from farmproxy.door.reservations import Reservation
from farmproxy.door.routes import LEASING, Does, Intent
from farmproxy.door.sessions import Session
from farmproxy.net.poller import READ
from farmproxy.net.sockets import Socket, is_open
from farmproxy.registry.ids import new_id
from farmproxy.registry.leases import Kind, Lease

_CHUNK = 16 * 1024
_WITH_JSON = frozenset({Does.NAME, Does.RENEW})
_KINDS = {Does.SOCKET: Kind.SOCKET, Does.RENDER: Kind.RENDER, Does.NAME: Kind.NAMED}


class Connection:
    """Watched by the poller from the start; the head's time runs from the accept, and again after each answer."""

    __slots__ = ("_api", "_buffer", "_close", "_counted", "_door", "_seen", "_served", "peer", "sock")

    def __init__(self, door: Door, api: LeasesApi, sock: Socket, peer: str) -> None:
        self._door = door
        self._api = api
        self._buffer = bytearray()
        self._close = False
        self._counted = 0  # bytes of a request that is not whole, as the door's budget knows them
        self._served = False  # answered once at least
        self._seen: tuple[Head, Intent, str, bool] | None = None  # a head whose body is still awaited
        self.sock = sock
        self.peer = peer
        door.allowed.pop(sock.fileno(), None)  # another connection's, which had this descriptor before

    def head_timed_out(self) -> None:
        """No whole request in time. A connection that was only kept open is closed without a word."""
        if self._seen is None and not self._buffer and self._served:
            self._door.poller.close(self.sock)
            return
        what = "body" if self._seen is not None else "head"
        limit = f"{self._door.settings.head_timeout_s:g}"
        self._refuse(Refusal.HEAD_TIMEOUT, f"the request's {what} did not come within {limit} s")

    def give_up(self) -> None:
        """A fault of ours."""
        self._gone()

    def answered(self, answer: bytes) -> None:
        """Answer at last (POST /leases), and go on with the next request."""
        self._door.poller.hand_over(self.sock, self.on_ready)
        self._door.poller.change(self.sock, READ)
        if self._send(answer, last=self._close):
            self._read_heads()

    def on_ready(self, _mask: int) -> None:
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone()
            return
        self._buffer += data
        self._read_heads()

    def _read_heads(self) -> None:
        """Serve what has come; several requests at once are served in their order."""
        buffer = self._buffer
        if self._counted:
            self.release()
        while True:
            if self._seen is None:
                while buffer.startswith(b"\r\n"):  # RFC 9112, 2.2: an empty line before a request is ignored
                    del buffer[:2]
                if not buffer or not self._read_head():
                    return
            if not self._serve():
                return

    def _read_head(self) -> bool:
        """Whether a whole head was read and accepted."""
        buffer = self._buffer
        bare = buffer.startswith(b"HEAD ")
        self._door.allowed.pop(self.sock.fileno(), None)  # of the request before
        try:
            end = request_heads.end_of(buffer)
            if end < 0:
                request_heads.check_part(buffer)
                self._reserve()
                return False
            head = request_heads.parse(bytes(buffer[:end]))
            intent, host, secure = self._door.judge(head, self.peer, self.sock)
        except Refused as refused:
            self._refuse(refused.reason, refused.detail, bare=bare)
            return False
        del buffer[:end]
        self._close = head.old or head.has_token(b"connection", b"close")
        self._seen = (head, intent, host, secure)
        if intent.does in _WITH_JSON and head.value(b"expect") is not None:
            return self._write(responses.CONTINUE)
        return True

    def _serve(self) -> bool:
        """Act on the head. Whether the connection is still this object's, and free for the next request."""
        assert self._seen is not None
        head, intent, host, secure = self._seen
        does = intent.does
        body = b""
        if does in _WITH_JSON:
            if len(self._buffer) < head.content_length:
                self._reserve()
                return False
            body = bytes(self._buffer[: head.content_length])
            del self._buffer[: head.content_length]
        self._seen = None
        try:
            if does in LEASING:
                self._lease(head, intent, host, body, secure=secure)
                return False
            if does is Does.JOIN:
                self._join(head, intent)
                return False
            answer = self._answer(head, intent, host, body, secure=secure)
        except Refused as refused:
            self._refuse(refused.reason, refused.detail, bare=head.method == b"HEAD")
            return False
        return self._send(answer, last=self._close)

    def _answer(self, head: Head, intent: Intent, host: str, body: bytes, *, secure: bool) -> bytes:
        door, bare = self._door, head.method == b"HEAD"
        if intent.does is Does.PREFLIGHT:
            return responses.preflight(head.value(b"access-control-request-headers"), close=self._close)
        if intent.does not in {Does.VERSION, Does.LIST}:
            return self._api.answer(intent, body, close=self._close)
        door.owner(intent)
        pool = judge({**intent.given}, door.rules).pool
        if intent.does is Does.LIST:
            return responses.ok([], close=self._close, bare=bare)
        learnt = door.versions.of(pool)
        return responses.ok(
            responses.version(learnt, host, head.query, secure=secure), close=self._close, bare=bare
        )

    def _lease(self, head: Head, intent: Intent, host: str, body: bytes, *, secure: bool) -> None:
        door = self._door
        owner = door.owner(intent)
        if intent.does is Does.NAME:
            intent.given = {**intent.given, **self._api.options(body)}
        options = judge(intent.given, door.rules)
        door.check_room(intent)
        if self._left():
            return
        door.heads.stop(self)
        lease = Lease(
            new_id(),
            _KINDS[intent.does],
            owner=owner,
            pool=options.pool,
            label=options.label,
            max_s=options.max_s,
            now=door.clock(),
        )
        lease.launch = options.launch
        if intent.does is Does.RENDER:
            lease.allow_origin = door.allowed.get(self.sock.fileno(), b"").decode("latin-1")
        lease.public_base = door.public_base(lease, host, secure=secure)
        if intent.does is Does.NAME:
            Reservation(door, lease, self, host, secure=secure).arrive(options.hold_s, len(body))
        else:
            Session(door, lease, self.sock, head, intent.target, self._buffer).arrive(options.hold_s)

    def _join(self, head: Head, intent: Intent) -> None:
        lease = self._door.book.find(intent.id, None, intent.key)
        if not isinstance(lease, Lease):
            raise Refused(Refusal.NOT_FOUND, "no such lease")
        self._door.check_room(intent)
        if self._left():
            return
        self._door.heads.stop(self)
        Join(self._door, lease, self.sock, head, intent.target, self._buffer).start()

    def _send(self, answer: bytes, *, last: bool = False) -> bool:
        """Write an answer; whether the connection goes on."""
        return self._write(self._door.readable(self.sock, answer), last=last)

    def _write(self, data: bytes, *, last: bool = False) -> bool:
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._gone()
            return False
        if last or sent < len(data):  # who asks without reading gets no further answer
            self._door.heads.stop(self)
            self._door.lingering_close.say(self.sock, data[sent:])
            return False
        self._door.heads.start(self)
        self._served = True
        return True

    def keep_next(self, data: bytes) -> tuple[Refusal, str] | None:
        """Bytes that came while the request before them waits; why they cannot be kept."""
        self._buffer += data
        if len(self._buffer) > request_heads.HEAD_LIMIT:
            return Refusal.BODY_TOO_LARGE, f"more than {request_heads.HEAD_LIMIT} bytes behind the request"
        if not self._door.reserve(len(data)):
            return Refusal.QUEUE_FULL, NO_MEMORY
        self._counted += len(data)
        return None

    def _reserve(self) -> None:
        size = len(self._buffer)
        if self._door.reserve(size):
            self._counted = size
        else:
            self._refuse(Refusal.QUEUE_FULL, NO_MEMORY)

    def release(self) -> None:
        self._door.reserve(-self._counted)
        self._counted = 0

    def _refuse(self, reason: Refusal, detail: str, *, bare: bool = False) -> None:
        self._door.heads.stop(self)
        self.release()
        self._door.refuse(self.sock, reason, detail, bare=bare)

    def _left(self) -> bool:
        """Whether the caller went away behind its own request: no pod is dialled for it, then."""
        if is_open(self.sock):
            return False
        self._gone()
        return True

    def _gone(self) -> None:
        self._door.heads.stop(self)
        self.release()
        self._door.poller.close(self.sock)
