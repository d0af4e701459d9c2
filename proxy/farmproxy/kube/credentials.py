"""Who the proxy is to the API server. A pod's token is rotated on disk: the file is read again each minute and after
a 401, and a read that fails keeps the last good one.
"""

import ssl
import time
from collections.abc import Callable
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from farmproxy.settings import SettingsError

REREAD_S = 60.0


class Credentials:
    """Bearer token and trust for one API server."""

    def __init__(
        self, token_file: str, log: FilteringBoundLogger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._token_file = token_file
        self._log = log
        self._clock = clock
        self._token = ""
        self._read_at: float | None = None

    def headers(self) -> dict[str, str]:
        """Authorization for the next request, none without a token file."""
        if self._token_file and (self._read_at is None or self._clock() - self._read_at >= REREAD_S):
            self.reread()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def reread(self) -> bool:
        """Read the file now; whether the token is another one than before."""
        if not self._token_file:
            return False
        self._read_at = self._clock()
        before = self._token
        try:
            token = Path(self._token_file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            self._log.error("kube-token-unreadable", path=self._token_file, detail=type(error).__name__)
            return False
        if token.isprintable() and " " not in token:
            self._token = token
        return self._token != before


def trust(ca_file: str) -> ssl.SSLContext:
    """TLS that believes this CA bundle (the system's when empty); SettingsError when it cannot be used."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        problem = f"FARMPROXY_KUBE_CA_FILE is {ca_file!r}; it cannot be used: {error}"
        raise SettingsError([problem]) from error
