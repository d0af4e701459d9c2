"""Who the proxy is to the API server, and whom it believes to be that. Both files are replaced on disk as they are rotated:
they are read again each minute and after a 401 or a broken connection, and a read that fails keeps the last good one.
"""

import ssl
import time
from collections.abc import Callable
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from farmproxy.config.settings import SettingsError

REREAD_S = 60.0


class Credentials:
    """Bearer token and trust for one API server."""

    def __init__(
        self,
        token_file: str,
        ca_file: str | None,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ca_file``: empty means the system's bundle, None no TLS. SettingsError when it cannot be used."""
        self._token_file = token_file
        self._ca_file = ca_file
        self._ca = b""
        self._tls: ssl.SSLContext | None = None
        self._tls_read_at = clock()
        if ca_file is not None:
            self._ca, self._tls = _content(ca_file), _trust(ca_file)
        self._log = log
        self._clock = clock
        self._token = ""
        self._read_at: float | None = None

    def headers(self) -> dict[str, str]:
        """Authorization for the next request, none without a token file."""
        if self._token_file and (self._read_at is None or self._clock() - self._read_at >= REREAD_S):
            self.reread()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def trust(self) -> ssl.SSLContext | bool:
        """What TLS of the next connection believes, as aiohttp takes it."""
        if self._clock() - self._tls_read_at >= REREAD_S:
            self.reread_trust()
        return self._tls or True

    def reread_trust(self) -> bool:
        """Read the CA file now; whether it is another one than before."""
        self._tls_read_at = self._clock()
        if not self._ca_file:
            return False
        try:
            ca = _content(self._ca_file)
            if ca == self._ca:
                return False
            self._tls = _trust(self._ca_file)
        except SettingsError as error:
            self._log.error("kube-ca-unusable", detail=str(error))
            return False
        self._ca = ca
        self._log.info("kube-ca-read-again")
        return True

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


def _content(ca_file: str) -> bytes:
    try:
        return Path(ca_file).read_bytes() if ca_file else b""
    except OSError as error:
        raise _unusable(ca_file, error) from error


def _trust(ca_file: str) -> ssl.SSLContext:
    """TLS that believes this bundle (the system's when empty)."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise _unusable(ca_file, error) from error


def _unusable(ca_file: str, error: OSError) -> SettingsError:
    return SettingsError([f"FARMPROXY_KUBE_CA_FILE is {ca_file!r}; it cannot be used: {error}"])
