"""Socket options of the data path and what the kernel's errors mean: one place for both sides of a session."""

import errno
import math
import socket
import struct

# A peer that vanished: keepalive or retransmission gave it up, or the network says it cannot be reached.
LOST_ERRNOS = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
# Ours alone is the fault: no descriptor, port or memory left here.
EXHAUSTED_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
_PROBES = 3
_LAST_ACK_RECV = struct.Struct("I")
_LAST_ACK_RECV_OFFSET = 56  # tcpi_last_ack_recv of struct tcp_info (linux/tcp.h), milliseconds


def listen(host: str, port: int, *, keepalive_s: float, stall_s: float) -> socket.socket:
    """The door's listening socket; Linux hands its TCP options on to every connection that it accepts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        tune(sock, keepalive_s=keepalive_s, stall_s=stall_s)
        sock.bind((host, port))
        sock.listen(4096)
    except OSError:
        sock.close()
        raise
    return sock


def outgoing(address: str) -> socket.socket:
    """A non-blocking socket of the address's family."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def tune(sock: socket.socket, *, keepalive_s: float, stall_s: float) -> None:
    """Small messages at once; a silent peer is probed after ``keepalive_s`` and given up after twice that.

    A peer that vanished with data under way is not probed but retransmitted to: TCP_USER_TIMEOUT bounds that. It also
    cuts off a peer that merely stopped reading, so it must not be shorter than the stall limit.
    """
    idle_s = max(1, math.ceil(keepalive_s))
    interval_s = max(1, math.ceil(keepalive_s / _PROBES))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    lost_s = max(idle_s + _PROBES * interval_s, stall_s + interval_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(lost_s * 1000))


def silent_for_s(sock: socket.socket) -> float:
    """Seconds since the peer's kernel last acknowledged anything: a stopped reader's kernel still does."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    milliseconds: int = _LAST_ACK_RECV.unpack_from(info, _LAST_ACK_RECV_OFFSET)[0]
    return milliseconds / 1000


def authority(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
