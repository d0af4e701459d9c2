"""Name look-ups of one render job, by c-ares: /etc/hosts, resolv.conf with its search list, no threads shared.

The rule: a look-up ends when the job does, and waits for nobody else's. The system's own (getaddrinfo) can do
neither: it blocks a thread until the last server of the last search domain has timed out, and Python runs it in a
small pool that all jobs share, so that one page with sixty unanswered names would hold up the next job's first.
"""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

from aiodns import DNSResolver
from aiodns.error import DNSError
from farmwire.addresses import Address

from farmagent.render.targets import LOOPBACK

Resolver = Callable[[str, int], Awaitable[Sequence[Address]]]


@asynccontextmanager
async def opened(resolv_conf: str | None = None) -> AsyncGenerator[Resolver, None]:
    """A resolver of one's own (0.2 ms of CPU to make); its look-ups end with the block. OSError from a look-up."""
    more: dict[str, Any] = {"resolvconf_path": resolv_conf} if resolv_conf else {}
    async with DNSResolver(**more) as cares:

        async def resolve(name: str, port: int) -> Sequence[Address]:
            # Names under localhost are loopback whatever a resolver says (RFC 6761).
            if name == "localhost" or name.endswith(".localhost"):
                return LOOPBACK
            try:
                found = await cares.getaddrinfo(name, port=port, type=socket.SOCK_STREAM)
            except DNSError as error:
                raise OSError(f"{name}: {error}") from error
            texts = (str(node.addr[0], "ascii").split("%", 1)[0] for node in found.nodes)
            return list(dict.fromkeys(ip_address(text) for text in texts))

        yield resolve
