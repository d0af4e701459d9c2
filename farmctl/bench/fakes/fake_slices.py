"""A fake control plane: EndpointSlices by list and watch over plain HTTP, as late as real ones.

Each slice is sampled once a second, as a kubelet's probe does, and a change is delivered ``late_s`` later:
so the proxy under test hears from its slices what a large cluster would tell it, and no sooner.
"""

import contextlib
import socket
import time
from collections import deque
from collections.abc import Sequence

import msgspec
from farmwire.paths import SERVICE_NAME_LABEL

from farmctl.bench.fakes import heads
from farmctl.bench.fakes.epoll import BROKEN, READ, WRITE, Loop
from farmctl.bench.fakes.fake_pods import Pod

SLICE_SIZE = 100  # the EndpointSlice controller's default --max-endpoints-per-slice
PROBE_PERIOD_S = 1.0
BOOKMARK_S = 20.0
SERVICE, NAMESPACE, PORT_NAME = "browsers", "farm", "cdp"
_encode = msgspec.json.Encoder().encode


def slice_json(number: int, pods: Sequence[Pod], ready: Sequence[bool], port: int, version: int) -> bytes:
    """Write one EndpointSlice as the API server would, with the fields of a real one (about 250 B a pod)."""
    return _encode(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{SERVICE}-{number}",
                "namespace": NAMESPACE,
                "uid": f"slice-uid-{number}",
                "resourceVersion": str(version),
                "labels": {SERVICE_NAME_LABEL: SERVICE},
            },
            "addressType": "IPv4",
            "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP"}],
            "endpoints": [
                {
                    "addresses": [pod.address],
                    "conditions": {"ready": up, "serving": up, "terminating": False},
                    "nodeName": f"node-{pod.index // 30}",
                    "zone": "zone-a",
                    "targetRef": {
                        "kind": "Pod",
                        "namespace": NAMESPACE,
                        "name": pod.name,
                        "uid": pod.uid,
                    },
                }
                for pod, up in zip(pods, ready, strict=True)
            ],
        }
    )


class Slice:
    """One slice: its pods, what a probe saw last, and the JSON that the API serves now."""

    __slots__ = ("number", "pods", "seen", "text")

    def __init__(self, number: int, pods: list[Pod]) -> None:
        self.number = number
        self.pods = pods
        self.seen: list[bool] = []
        self.text = b""


class FakeSlices:
    """The API server of one Service. ``events`` counts what was sent to watchers."""

    def __init__(self, loop: Loop, pods: Sequence[Pod], pod_port: int, *, late_s: float) -> None:
        self._loop = loop
        self._port = pod_port
        self._late_s = late_s
        self._version = 1
        self.events = 0
        self.listed_at: list[int] = []  # monotonic_ns of each list request
        self._watchers: set[_ApiConnection] = set()
        self._open: set[_ApiConnection] = set()
        self._past: deque[tuple[int, bytes]] = deque(maxlen=400)  # what a watch that starts late must hear
        self._slices = [
            Slice(i // SLICE_SIZE, list(pods[i : i + SLICE_SIZE])) for i in range(0, len(pods), SLICE_SIZE)
        ]
        for one in self._slices:
            one.seen = [pod.free for pod in one.pods]
            one.text = slice_json(one.number, one.pods, one.seen, pod_port, 1)
            phase = PROBE_PERIOD_S * one.number / len(self._slices)
            loop.after(phase, lambda one=one: self._probe(one))  # type: ignore[misc]
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        loop.watch(self._listener.fileno(), self._on_accept)
        loop.after(BOOKMARK_S, self._bookmark)

    def _probe(self, one: Slice) -> None:
        self._loop.after(PROBE_PERIOD_S, lambda: self._probe(one))
        seen = [pod.free for pod in one.pods]
        if seen != one.seen:
            one.seen = seen
            self._loop.after(self._late_s, lambda: self.publish(one, seen))

    def publish(self, one: Slice, ready: Sequence[bool]) -> None:
        self._version += 1
        one.text = slice_json(one.number, one.pods, ready, self._port, self._version)
        self._tell(b'{"type":"MODIFIED","object":%b}\n' % one.text)

    def flip(self, number: int, *, ready: bool) -> None:
        """Publish slice ``number`` with its first endpoint forced to ``ready`` (a made-up change)."""
        one = self._slices[number % len(self._slices)]
        self.publish(one, [ready, *[pod.free for pod in one.pods[1:]]])

    @property
    def slices(self) -> int:
        return len(self._slices)

    def _tell(self, line: bytes) -> None:
        self.events += 1
        chunk = b"%x\r\n%b\r\n" % (len(line), line)
        self._past.append((self._version, chunk))
        for watcher in self._watchers:
            watcher.send(chunk)

    def _bookmark(self) -> None:
        self._loop.after(BOOKMARK_S, self._bookmark)
        self._tell(
            b'{"type":"BOOKMARK","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1",'
            b'"metadata":{"resourceVersion":"%d"}}}\n' % self._version
        )

    def close(self) -> None:
        """Close every socket; the loop must have stopped."""
        self._listener.close()
        for conn in self._open:
            conn.sock.close()

    def _on_accept(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            sock, _peer = self._listener.accept()
            sock.setblocking(False)
            conn = _ApiConnection(self, self._loop, sock)
            self._open.add(conn)
            self._loop.watch(sock.fileno(), conn.on_ready)

    def serve(self, conn: "_ApiConnection", query: dict[bytes, bytes]) -> None:
        """Answer one request: a watch stays open, a list ends (in pages where the client asks for them)."""
        if query.get(b"watch", b"") in {b"1", b"true"}:
            self._watchers.add(conn)
            since = int(query.get(b"resourceVersion", b"0") or 0)
            conn.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            conn.send(b"".join(chunk for version, chunk in self._past if version > since))
            return
        self.listed_at.append(time.monotonic_ns())
        first = int(query.get(b"continue", b"0"))
        size = int(query.get(b"limit", b"0")) or len(self._slices)
        last = min(first + size, len(self._slices))
        more = f"{last}" if last < len(self._slices) else ""
        meta = _encode({"resourceVersion": str(self._version), "continue": more})
        items = b",".join(one.text for one in self._slices[first:last])
        body = b'{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":%b,"items":[%b]}'
        conn.send(heads.answer(b"200 OK", body % (meta, items), b"Content-Type: application/json\r\n"))

    def left(self, conn: "_ApiConnection") -> None:
        self._watchers.discard(conn)
        self._open.discard(conn)


class _ApiConnection:
    __slots__ = ("_api", "_in", "_loop", "_out", "sock")

    def __init__(self, api: FakeSlices, loop: Loop, sock: socket.socket) -> None:
        self._api = api
        self._loop = loop
        self.sock = sock
        self._in = b""
        self._out = bytearray()

    def send(self, data: bytes) -> None:
        self._out += data
        self._loop.change(self.sock.fileno(), READ | WRITE)

    def on_ready(self, mask: int) -> None:
        try:
            if mask & WRITE and self._out:
                del self._out[: self.sock.send(memoryview(self._out)[: 1 << 20])]
                if not self._out:
                    self._loop.change(self.sock.fileno(), READ)
            if mask & (READ | BROKEN):
                self._read()
        except BlockingIOError:
            return
        except OSError:
            self._close()

    def _read(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            self._close()
            return
        self._in += data
        while (end := self._in.find(heads.END)) >= 0:
            head, self._in = self._in[: end + 2], self._in[end + 4 :]
            self._api.serve(self, heads.pairs(heads.target(head)[1], b"&"))

    def _close(self) -> None:
        self._api.left(self)
        self._loop.forget(self.sock)
