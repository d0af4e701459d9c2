"""How leases ended, for who asks later: five minutes of them, in bounded memory.

They are kept in pages by the time of their end and forgotten a page at a time, so that forgetting costs nothing and an
entry is no more than a few words: its strings are those that the pod and the caller's rules share.
"""

from collections import deque

import msgspec
from farmwire.reasons import End

REMEMBERED_S = 300.0
# At 240 bytes each, 24 MB at most. All of five minutes up to 333 leases a second, three times what the reference farm
# has; beyond that the newest.
_REMEMBERED = 100_000
_PAGE_S = 5.0
_PAGES = 64  # a page is full with its share of all


class Ended(msgspec.Struct, gc=False):
    """What is remembered of a lease that ended; ``_wall``: Unix seconds."""

    began_wall: float
    ended_wall: float
    end: End
    kind: str
    label: str
    owner: str
    pod: str
    pool: str


class _Page:
    __slots__ = ("began_at", "last_at", "leases")

    def __init__(self, began_at: float) -> None:
        self.began_at = self.last_at = began_at
        self.leases: dict[str, Ended] = {}


class History:
    """The newest ``_REMEMBERED`` at most; times are of one monotonic clock."""

    __slots__ = ("_count", "_pages")

    def __init__(self) -> None:
        self._pages: deque[_Page] = deque()
        self._count = 0

    def keep(self, id_: str, ended: Ended, now: float) -> None:
        """Remember a lease that ended just now."""
        page = self._pages[-1] if self._pages else None
        if page is None or now - page.began_at > _PAGE_S or len(page.leases) >= _REMEMBERED // _PAGES:
            page = _Page(now)
            self._pages.append(page)
        page.leases[id_] = ended
        page.last_at = now
        self._count += 1
        while self._count > _REMEMBERED:
            self._forget_oldest()

    def find(self, id_: str) -> Ended | None:
        for page in reversed(self._pages):
            found = page.leases.get(id_)
            if found is not None:
                return found
        return None

    def forget(self, now: float) -> None:
        """Let go of the pages whose newest lease ended five minutes ago."""
        while self._pages and self._pages[0].last_at <= now - REMEMBERED_S:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self._count -= len(self._pages.popleft().leases)
