"""Fake pods: thousands of addresses behind one listening socket, each with an agent's manners.

They speak the lease handshake and /readyz to the proxy, and serve HAProxy directly; the job behind both is
the same code. A pod runs one job at a time and counts every time somebody tried otherwise.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from farmwire import headers as names

from farmctl.bench.fakes import heads
from farmctl.bench.fakes.epoll import BROKEN, READ, WRITE, Loop

CHUNK = 256 * 1024
_LEASE = names.LEASE.lower().encode()
_COPIED = tuple(name.encode() for name in (names.LEASE, names.WAITED_MS, names.DIALS))


def address(index: int) -> str:
    """Return the loopback address of a pod; 127.0 and 127.1 belong to real farms."""
    return f"127.{16 + index // 62_500}.{index // 250 % 250}.{index % 250 + 1}"


@dataclass(slots=True, eq=False)
class Pod:
    """One pod. ``free_at`` is time.monotonic_ns of the moment it last turned free."""

    index: int
    name: str
    uid: str
    address: str
    free: bool = True
    free_at: int = 0
    lease: bytes = b""  # the lease that runs or ran last
    job: "Connection | None" = None
    waiters: "list[Connection]" = field(default_factory=list)


class Connection:
    """One accepted connection: an agent's request, a lease, or a job that came directly."""

    __slots__ = (
        "_in",
        "_out",
        "_pods",
        "asked",
        "finishing",
        "handler",
        "pod",
        "shake",
        "sock",
        "started_at",
        "wishes",
    )

    def __init__(self, pods: "FakePods", sock: socket.socket, pod: Pod) -> None:
        self._pods = pods
        self._in = b""
        self._out: bytes | memoryview = b""
        self.sock = sock
        self.pod = pod
        self.asked = 0  # questions so far on this kept-alive connection
        self.shake = b""  # header lines of the handshake that the answer's head repeats
        self.wishes: dict[bytes, bytes] = {}
        self.started_at = 0
        self.finishing = False
        self.handler: Callable[[Connection, bytes], bytes] = pods.on_head

    def on_ready(self, mask: int) -> None:
        if mask & WRITE and not self._flush():
            return
        if mask & READ:
            try:
                data = self.sock.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            self._in = self.handler(self, self._in + data if self._in else data)
        elif mask & BROKEN:
            self.close()

    def send(self, data: bytes) -> None:
        """Write now what fits, the rest when the socket takes it."""
        if self._out:
            self._out = bytes(self._out) + data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the read side reports the end
        if sent < len(data):
            self._out = memoryview(data)[sent:]
            self._pods.loop.change(self.sock.fileno(), READ | WRITE)

    def stream(self, piece: bytes) -> None:
        """Start a stream; ``next_piece`` feeds it until the wished number of bytes is out."""
        self._out = bytes(self._out) + piece
        self._pods.loop.change(self.sock.fileno(), READ | WRITE)

    def finish(self) -> None:
        """Say that nothing follows, once everything is out; the peer then closes."""
        self.finishing = True
        if not self._out:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)

    def _flush(self) -> bool:
        try:
            self._out = self._out[self.sock.send(self._out) :]
        except BlockingIOError:
            return True
        except OSError:
            self.close()
            return False
        if not self._out:
            self._out = self._pods.next_piece(self)
        if not self._out:
            self._pods.loop.change(self.sock.fileno(), READ)
            if self.finishing:
                self.finish()
        return True

    def close(self) -> None:
        if self.sock.fileno() < 0:
            return
        self._pods.loop.forget(self.sock)
        self._pods.on_closed(self)


class FakePods:
    """All pods of one process. ``port`` 0 takes a free one. Only the loopback interface is served."""

    def __init__(self, loop: Loop, number: int, port: int = 0) -> None:
        self.loop = loop
        self.pods = [Pod(i, f"pod-{i}", f"uid-{i}", address(i)) for i in range(number)]
        self.by_address = {pod.address: pod for pod in self.pods}
        self.leases = self.doubles = self.busy_answers = 0
        self._open: set[Connection] = set()
        self._filler = b"x" * CHUNK
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        self._listener.bind(("0.0.0.0", port))
        self._listener.listen(4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        loop.watch(self._listener.fileno(), self._on_accept)

    def close(self) -> None:
        """Close every socket; the loop must have stopped."""
        self._listener.close()
        for conn in self._open:
            conn.sock.close()

    def _on_accept(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _n in range(64):
                sock, _peer = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pod = self.by_address[sock.getsockname()[0]]
                conn = Connection(self, sock, pod)
                self._open.add(conn)
                self.loop.watch(sock.fileno(), conn.on_ready)

    # --- what an agent answers

    def on_head(self, conn: Connection, data: bytes) -> bytes:
        """Serve the requests of an agent's connection, or hand over to the job."""
        while (end := data.find(heads.END)) >= 0:
            head, data = data[: end + 2], data[end + 4 :]
            path, query = heads.target(head)
            if path == b"/readyz":
                self._on_readyz(conn, heads.pairs(query, b"&"))
            elif path == b"/lease":
                self._on_lease(conn, head)
                if conn.pod.job is conn:
                    conn.handler = self.on_job
                    return self.on_job(conn, data) if data else b""
            elif path == b"/json/version":
                conn.send(heads.answer(b"200 OK", b'{"Browser": "Fake/1", "Protocol-Version": "1.3"}'))
            elif self._claim(conn, b"direct"):
                return self.on_job(conn, head + b"\r\n" + data)
            else:
                conn.send(heads.answer(b"503 Service Unavailable", self._busy(conn.pod), close=True))
        return data

    def _on_readyz(self, conn: Connection, query: dict[bytes, bytes]) -> None:
        pod = conn.pod
        if pod.free or not float(query.get(b"wait", b"0")):
            self._say_ready(conn)
            return
        pod.waiters.append(conn)
        conn.asked += 1
        asked = conn.asked

        def give_up() -> None:
            # The same connection may be waiting again by now, with a later question.
            if conn.asked == asked and conn in pod.waiters:
                pod.waiters.remove(conn)
                self._say_ready(conn)

        self.loop.after(float(query[b"wait"]), give_up)

    def _say_ready(self, conn: Connection) -> None:
        pod = conn.pod
        body = json.dumps({"lease": pod.lease.decode(), "end": "done"}).encode()
        if pod.free:
            conn.send(heads.answer(b"200 OK", body))
        else:
            conn.send(heads.answer(b"503 Service Unavailable", self._busy(pod)))

    def _on_lease(self, conn: Connection, head: bytes) -> None:
        lowered = head.lower()
        lease, pod = heads.header(head, lowered, _LEASE), conn.pod
        if not self._claim(conn, lease):
            conn.send(heads.answer(b"409 Conflict", self._busy(pod), close=True))
            return
        conn.shake = b"".join(
            b"%b: %b\r\n" % (name, value)
            for name in _COPIED
            if (value := heads.header(head, lowered, name.lower()))
        )
        conn.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: farm-lease\r\n"
            b"Farm-Lease: %b\r\nFarm-Pod: farm/%b/%b\r\n\r\n" % (lease, pod.name.encode(), pod.uid.encode())
        )

    def _claim(self, conn: Connection, lease: bytes) -> bool:
        pod = conn.pod
        if not pod.free:
            self.busy_answers += 1
            self.doubles += pod.job is not None
            return False
        pod.free, pod.job, pod.lease = False, conn, lease
        self.leases += 1
        return True

    def _busy(self, pod: Pod) -> bytes:
        return b'{"reason": "busy"}' if pod.job else b'{"reason": "recycling"}'

    # --- the job, the same behind both proxies

    def on_job(self, conn: Connection, data: bytes) -> bytes:
        """Wait for the caller's head and body, then do as its wishes say."""
        end = data.find(heads.END)
        if end < 0:
            conn.handler = self.on_job
            return data
        head = data[: end + 2]
        lowered = head.lower()
        length = int(heads.header(head, lowered, b"content-length") or 0)
        conn.started_at = conn.started_at or time.monotonic_ns()
        if len(data) < end + 4 + length:
            conn.handler = self.on_job
            return data
        conn.wishes = heads.pairs(heads.header(head, lowered, heads.WORK), b";")
        times = b"X-Free-At: %d\r\nX-Session-At: %d\r\n" % (conn.pod.free_at, conn.started_at)
        conn.shake += times
        if heads.header(head, lowered, b"upgrade"):
            self._begin_socket(conn)
        else:
            session_s = float(conn.wishes.get(b"session_ms", b"0")) / 1e3
            if session_s:
                self.loop.after(session_s, lambda: self._answer(conn))
            else:
                self._answer(conn)
        return b""

    def _answer(self, conn: Connection) -> None:
        if conn.sock.fileno() < 0:
            return
        body = self._filler[: int(conn.wishes.get(b"bytes", b"0"))]
        conn.handler = self.on_drain
        conn.send(heads.answer(b"200 OK", body, conn.shake, close=True))
        conn.finish()

    def _begin_socket(self, conn: Connection) -> None:
        conn.handler = self.on_drain if b"sink" in conn.wishes else self.on_echo
        conn.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (heads.WS_ACCEPT, conn.shake)
        )
        if b"stream" in conn.wishes:
            conn.stream(self.next_piece(conn))

    def next_piece(self, conn: Connection) -> bytes:
        """Return the next piece of a stream, empty when the wished bytes are all on their way."""
        left = int(conn.wishes.get(b"stream", b"0"))
        conn.wishes[b"stream"] = b"%d" % max(0, left - CHUNK)
        return self._filler if left >= CHUNK else self._filler[:left]

    def on_echo(self, conn: Connection, data: bytes) -> bytes:
        conn.send(data)
        return b""

    def on_drain(self, _conn: Connection, _data: bytes) -> bytes:
        return b""

    # --- between jobs

    def on_closed(self, conn: Connection) -> None:
        pod = conn.pod
        self._open.discard(conn)
        if conn in pod.waiters:
            pod.waiters.remove(conn)
        if pod.job is not conn:
            return
        pod.job = None
        recycle_s = float(conn.wishes.get(b"recycle_ms", b"0")) / 1e3
        if recycle_s:
            self.loop.after(recycle_s, lambda: self._turn_free(pod))
        else:
            self._turn_free(pod)

    def _turn_free(self, pod: Pod) -> None:
        pod.free = True
        pod.free_at = time.monotonic_ns()
        waiters, pod.waiters = pod.waiters, []
        for conn in waiters:
            self._say_ready(conn)
