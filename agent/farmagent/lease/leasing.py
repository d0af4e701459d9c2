"""GET /lease: from the proxy's question to the end of the lease's connection.

The rule: 101 means leased and usable, so Chrome has answered at that very moment; until then the proxy hears
102 each second, and a pod that cannot be leased says why in a 409. The connection is the lease: when it
closes, from either side, the lease is over.
"""

import asyncio
import hmac
from contextlib import suppress
from pathlib import Path

from farmwire import headers, launch_options
from farmwire.headers import UPGRADE_TOKEN
from farmwire.launch_options import LaunchOptions
from farmwire.reasons import SCOPE_CALLER, Busy, End

from farmagent import cancellation
from farmagent.chrome import flags
from farmagent.http.connections import PeerGone
from farmagent.http.heads import HttpServerSide, Request
from farmagent.lease import lease_requests, sessions
from farmagent.lease.lease_requests import LeaseRequest
from farmagent.lease.pod import LiveLease, Pod
from farmagent.lease.sessions import Renderer, SessionPlace
from farmagent.logs import log

PREPARING_EVERY_S = 1.0
OPTIONS_DETAIL = 1000  # characters of Chrome's last words that a caller is told


class KeyFile:
    """The secret that proxies must show; re-read whenever the file has changed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._key = b""

    def accepts(self, shown: str | None) -> bool:
        """Raises OSError when the file cannot be read: a pod without its key serves nobody."""
        if self._path is None:
            return True
        stat = self._path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        if stamp != self._stamp:
            self._key, self._stamp = self._path.read_bytes().strip(), stamp
        return bool(self._key) and hmac.compare_digest((shown or "").encode("latin-1"), self._key)


class Leasing:
    def __init__(self, pod: Pod, renderer: Renderer) -> None:
        self._pod = pod
        self._renderer = renderer
        self._key = KeyFile(pod.settings.key_file)

    async def serve(self, http: HttpServerSide, request: Request) -> bool:
        """Whether the connection is still HTTP (it was refused)."""
        lease_request = lease_requests.read(request)
        try:
            accepted = self._key.accepts(request.header(headers.KEY))
        except OSError as error:
            log.error("key-unreadable", detail=str(error))
            await http.answer_json(500, {"reason": "key-unreadable", "detail": "see the agent's log"})
            return True
        if not accepted:
            await http.answer_json(
                403, {"reason": "unauthorized", "detail": f"{headers.KEY} is missing or wrong"}
            )
            return True
        if lease_request.profile:
            body = {
                "reason": "profile-unsupported",
                "detail": "this pod keeps no profiles",
                "scope": SCOPE_CALLER,
            }
            await http.answer_json(400, body)
            return True
        if lease_request.is_join:
            return await self._join(http, lease_request)
        return await self._lease(http, lease_request)

    async def _join(self, http: HttpServerSide, lease_request: LeaseRequest) -> bool:
        lease = self._pod.lease
        if lease is None or lease.id != lease_request.lease or not lease.began:
            await http.answer_json(404, {"reason": "not-found", "detail": "that lease does not run here"})
            return True
        if (
            lease_request.lease_max_s is not None
        ):  # a join says how long the lease may last now: it may have been renewed
            self._pod.limit_lease(lease, max_s=lease_request.lease_max_s)
        await self._switch(http, lease_request)
        await self._session(http, lease_request, lease)
        return False

    async def _lease(self, http: HttpServerSide, lease_request: LeaseRequest) -> bool:
        max_s = lease_request.lease_max_s or self._pod.settings.lease_max_s
        try:
            options = self._options(lease_request)
        except ValueError as error:
            await self._refuse_options(http, str(error))
            return True
        lease = self._pod.ask_lease(lease_request.lease, max_s=max_s, options=options)
        if isinstance(lease, Busy):
            await self._refuse(http, lease)
            return True
        end = End.DONE
        try:
            if not await self._prepare(http, lease):
                if lease.own is not None and lease.own.refused:
                    await self._refuse_options(
                        http, f"Chrome ends with these: {lease.own.refused}"[:OPTIONS_DETAIL]
                    )
                else:
                    await self._refuse(http, self._pod.busy or Busy.RECYCLING)
                return True
            await self._switch(http, lease_request)
            self._pod.lease_began(lease)
            end = await self._session(http, lease_request, lease)
        finally:
            self._pod.lease_closed(lease.id, end)
        return False

    def _options(self, lease_request: LeaseRequest) -> LaunchOptions | None:
        """What the lease's Chrome is to be started with; None for the usual one. Raises ValueError."""
        if not lease_request.launch:
            return None
        options = launch_options.from_header(lease_request.launch)
        own = flags.clash(options, self._pod.settings.chrome_args)
        if own:
            raise ValueError(f"this pod's owner has set {own}, and that stays")
        return options

    async def _refuse_options(self, http: HttpServerSide, detail: str) -> None:
        body = {"reason": "launch-refused", "detail": detail, "scope": SCOPE_CALLER}
        await http.answer_json(422, body)

    async def _refuse(self, http: HttpServerSide, busy: Busy) -> None:
        await http.answer_json(409, {"reason": busy})

    async def _prepare(self, http: HttpServerSide, lease: LiveLease) -> bool:
        """Whether Chrome has answered; if not, the lease is over. Raises PeerGone when the proxy left meanwhile."""
        async with asyncio.TaskGroup() as group:
            saying = group.create_task(self._say_preparing(http))
            with suppress(cancellation.OverError):
                await cancellation.unless(self._pod.check_chrome(lease), http.connection.ended, lease.over)
            saying.cancel()
        if http.connection.ended.is_set():
            raise PeerGone("the proxy left during the handshake")
        return not lease.over.is_set()

    async def _say_preparing(self, http: HttpServerSide) -> None:
        with suppress(PeerGone):
            while True:
                await asyncio.sleep(PREPARING_EVERY_S)
                await http.inform(102)

    async def _switch(self, http: HttpServerSide, lease_request: LeaseRequest) -> None:
        glued = http.glued()
        await http.inform(
            101,
            [
                ("Connection", "Upgrade"),
                ("Upgrade", UPGRADE_TOKEN),
                (headers.LEASE, lease_request.lease),
                (headers.POD, self._pod.settings.pod),
            ],
        )
        http.connection.unread(glued)

    async def _session(self, http: HttpServerSide, lease_request: LeaseRequest, lease: LiveLease) -> End:
        chrome = self._pod.chrome
        if chrome is None:
            http.connection.close()
            return End.BROWSER_DIED
        place = SessionPlace(
            lease_request=lease_request,
            chrome=chrome,
            pod=self._pod.settings.pod,
            over=lease.over,
            used=lambda: self._pod.lease_used(lease.id),
            renderer=self._renderer,
            body_limit_s=self._pod.settings.head_timeout_s,
        )
        return await sessions.serve(http.connection, place)
