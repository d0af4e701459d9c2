"""A network of the benchmark's own: nothing else's packets, ports or packet filter stand between the programs measured.

With a filter that tracks connections (any container engine loads one) each lease costs an entry for two minutes. At a
thousand leases a second the table fills up, and the kernel drops packets: callers of either proxy wait for seconds.
"""

import ctypes
import fcntl
import socket
import struct

_CLONE_NEWNET = 0x40000000  # unshare(2)
_SIOCSIFFLAGS = 0x8914  # netdevice(7)
_IFF_UP = 0x1


def isolate() -> bool:
    """Move this thread, and all that it starts, into an empty network whose loopback is up. False: not permitted."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return True
