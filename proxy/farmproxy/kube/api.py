"""HTTP to the API server: one Service's EndpointSlices, listed in pages and watched in lines. Every way in which that
can end is an Interrupted; nothing else comes out but a fault of this code.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Self

import aiohttp
from farmwire.paths import SERVICE_NAME_LABEL
from farmwire.reasons import WatchRestart

from farmproxy import __version__
from farmproxy.config.settings import Settings
from farmproxy.kube.credentials import Credentials
from farmproxy.kube.lines import Lines, LineTooLongError
from farmproxy.kube.messages import UNREADABLE, ListPage, decode_page, status_from
from farmproxy.kube.restarts import Interrupted

PAGE_SLICES = 100  # about 3 MB of JSON and 40 ms of decoding, so that a long list never stops the relay
CONNECT_S = 10.0
LARGEST_STATUS_BYTES = 64 * 1024
LATE_S = 1.0


class SliceApi:
    """Use it as an async context; it holds its own connections."""

    def __init__(self, settings: Settings, service: str, credentials: Credentials) -> None:
        self._url = (
            f"{settings.kube_api}/apis/discovery.k8s.io/v1/namespaces/{settings.namespace}/endpointslices"
        )
        self._selector = {"labelSelector": f"{SERVICE_NAME_LABEL}={service}"}
        self._credentials = credentials
        self._silence_s = settings.watch_silence_s
        self._list_limits = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=self._silence_s)
        self._watch_limits = aiohttp.ClientTimeout(
            sock_connect=CONNECT_S, sock_read=self._silence_s + 2 * LATE_S
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"Accept": "application/json", "User-Agent": f"farmproxy/{__version__}"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def pages(self, *, whole: bool) -> AsyncGenerator[ListPage, None]:
        """A list of what is true now: no resourceVersion asks for a consistent read (the API's concepts page).
        ``whole``: in one page, for when a list in pages grew too old on the way.
        """
        query = dict(self._selector) if whole else {**self._selector, "limit": str(PAGE_SLICES)}
        while True:
            async with self._get(query) as response:
                with _mapped():
                    page = decode_page(await response.read())
            yield page
            if page.metadata is None or not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def lines(self, resource_version: str) -> AsyncGenerator[bytes | None, None]:
        """The watch from this version on: None for each sign of life, then the lines that came whole with it."""
        query = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            # The server ends a quiet watch well before silence would: then silence means a dead connection.
            "timeoutSeconds": str(max(1, int(self._silence_s * 0.8))),
        }
        lines = Lines()
        async with self._get(query) as response:
            yield None
            while True:
                with _mapped():
                    chunk = await self._chunk(response)
                if not chunk:
                    raise Interrupted(WatchRestart.CLOSED, "the API server ended the watch")
                yield None
                with _mapped():
                    whole = list(lines.feed(chunk))
                for line in whole:
                    yield line

    async def _chunk(self, response: aiohttp.ClientResponse) -> bytes:
        """The watch's next bytes; TimeoutError after the silence limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._silence_s):
                return await response.content.readany()
        # A process that was stopped is told of the time first, and of what came meanwhile a moment later.
        async with asyncio.timeout(LATE_S):
            return await response.content.readany()

    @asynccontextmanager
    async def _get(self, query: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "use it as a context"
        with _mapped():
            response = await self._session.get(
                self._url,
                params=query,
                headers=self._credentials.headers(),
                ssl=self._credentials.trust(),
                timeout=self._watch_limits if "watch" in query else self._list_limits,
                allow_redirects=False,
            )
        try:
            if response.status != 200:
                with _mapped():
                    body = await response.content.read(LARGEST_STATUS_BYTES)
                raise self._refused(response, body)
            yield response
        finally:
            response.close()

    def _refused(self, response: aiohttp.ClientResponse, body: bytes) -> Interrupted:
        status = status_from(body)
        detail = f"HTTP {response.status} {status.message or status.reason or response.reason or ''}".strip()[
            :200
        ]
        after_s = _seconds(response.headers.get("Retry-After")) or status.retry_after_s
        if response.status == 410 or status.gone:
            return Interrupted(WatchRestart.GONE, detail, relist=True, retry_after_s=after_s)
        if response.status == 401:
            return Interrupted(WatchRestart.UNAUTHORIZED, detail, retry_after_s=after_s)
        # 400: the server knows no such version, as after a restore of its store
        return Interrupted(WatchRestart.REFUSED, detail, relist=response.status == 400, retry_after_s=after_s)


@contextmanager
def _mapped() -> Iterator[None]:
    """The one place where errors of aiohttp, the sockets and the decoder become an Interrupted."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise Interrupted(WatchRestart.BROKEN, "no connection in time") from error
    except TimeoutError as error:  # aiohttp.SocketTimeoutError is one
        raise Interrupted(WatchRestart.SILENCE, "nothing came within the silence limit") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Interrupted(WatchRestart.BROKEN, f"{type(error).__name__}: {error}"[:200]) from error
    except (*UNREADABLE, LineTooLongError) as error:
        raise Interrupted(WatchRestart.GARBAGE, str(error)[:200], relist=True) from error


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in its form of seconds; the form of a date is not used by API servers."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
