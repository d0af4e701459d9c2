"""Socket options of the data path and what the kernel's errors mean: one place for both sides of a session."""

import errno
import fcntl
import math
import socket
import struct
import sys
import termios

# A peer that vanished: keepalive or retransmission gave it up, or the network says it cannot be reached.
LOST_ERRNOS = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
# Ours alone is the fault: no descriptor, port or memory left here.
EXHAUSTED_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
_PROBES = 3
_TCP = socket.IPPROTO_TCP
_TYPE = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_UNACKED = struct.Struct("I")
_ESTABLISHED = b"\x01"  # tcpi_state, the first byte of struct tcp_info
_UNACKED_OFFSET = 24  # tcpi_unacked of struct tcp_info (linux/tcp.h), segments
_LAST_ACK_RECV_OFFSET = 56  # tcpi_last_ack_recv, milliseconds

# The C type itself: the same calls without the Python layer that a socket's life otherwise costs a lease twice.
Socket = socket.SocketType


def listen(host: str, port: int, *, keepalive_s: float) -> Socket:
    """The door's listening socket; Linux hands its TCP options on to every connection that it accepts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = Socket(family, _TYPE, 0)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        tune(sock, keepalive_s)
        sock.bind((host, port))
        sock.listen(4096)
    except OSError:
        sock.close()
        raise
    return sock


def accept(listening: Socket, family: int) -> tuple[Socket, str]:
    """The next connection, non-blocking, and the address of its peer."""
    fd, peer = listening._accept()  # type: ignore[attr-defined]  # noqa: SLF001  # accept() is Python around it
    sock = Socket(family, socket.SOCK_STREAM, 0, fd)
    sock.setblocking(False)
    return sock, peer[0]


def outgoing(address: str) -> Socket:
    """A non-blocking socket of the address's family."""
    return Socket(socket.AF_INET6 if ":" in address else socket.AF_INET, _TYPE, 0)


def tune(sock: Socket, keepalive_s: float) -> None:
    """Small messages at once; a silent peer is probed after ``keepalive_s`` and given up after twice that.

    TCP_USER_TIMEOUT stays unset: it would bound retransmission too, but also cut off a peer that only stopped reading
    (see ``unheard_s``).
    """
    idle_s = max(1, math.ceil(keepalive_s))
    sock.setsockopt(_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(_TCP, socket.TCP_KEEPIDLE, idle_s)
    sock.setsockopt(_TCP, socket.TCP_KEEPINTVL, max(1, idle_s // _PROBES))
    sock.setsockopt(_TCP, socket.TCP_KEEPCNT, _PROBES)


def unheard_s(sock: Socket) -> tuple[bool, float]:
    """Whether something sent is not acknowledged yet, and the seconds since the peer's kernel acknowledged anything.

    The kernel of a peer that stopped reading goes on acknowledging probes; that of a vanished one does not, and then
    keepalive does not run either: only retransmission does, for a quarter of an hour.
    """
    info = sock.getsockopt(_TCP, socket.TCP_INFO, 104)
    unacked: int = _UNACKED.unpack_from(info, _UNACKED_OFFSET)[0]
    milliseconds: int = _UNACKED.unpack_from(info, _LAST_ACK_RECV_OFFSET)[0]
    return unacked > 0, milliseconds / 1000


def is_open(sock: Socket) -> bool:
    """Whether the peer has sent neither FIN nor RST, whatever bytes of it are still unread."""
    try:
        return sock.getsockopt(_TCP, socket.TCP_INFO, 1) == _ESTABLISHED
    except OSError:
        return False  # closed by ourselves


def queued_bytes(sock: Socket) -> int:
    """What was written and not acknowledged yet: it shrinks while the peer takes anything at all."""
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"), sys.byteorder)


def authority(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
